/**
 * Lets the person choose what a tool may see of the browser (PROTOCOL §2, `browser_context_decision`): by default the
 * tool may see everything.
 */
import asksCss from "./questions.module.css";

export const BROWSER_PARTS = [
  { key: "include_screenshot", label: "Screenshot" },
  { key: "include_actions", label: "Actions" },
  { key: "include_console", label: "Console" },
  { key: "include_network", label: "Network" },
  { key: "include_mutations", label: "Changes of the page" },
] as const;

export function BrowserParts({ chosen, onChange }: { chosen: ReadonlySet<string>; onChange: (chosen: ReadonlySet<string>) => void }) {
  return (
    <fieldset class={asksCss.browserParts}>
      <legend>Share</legend>
      {BROWSER_PARTS.map(({ key, label }) => (
        <label key={key}>
          <input
            type="checkbox"
            checked={chosen.has(key)}
            onChange={(event) => {
              const now = new Set(chosen);
              if (event.currentTarget.checked) now.add(key);
              else now.delete(key);
              onChange(now);
            }}
          />
          {label}
        </label>
      ))}
    </fieldset>
  );
}
