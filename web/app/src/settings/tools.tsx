/** Settings for the tools that the model may call in this chat, and for the calls that need an approval. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ToolInfo } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { mcpServerOf, shownName } from "../tools/calls.ts";
import { toggled } from "./params.ts";
import { modeId, modeTitle, refusals, set, values } from "./values.ts";
import css from "./settings.module.css";

const POLICIES: Readonly<Record<ToolInfo["policy"], string>> = {
  auto: "runs by itself",
  ask: "asks you first",
  preview: "shows you first",
  client: "runs in your editor or app",
  deny: "never runs",
};

/** The tools of the chat's mode, including those that are switched off here. */
const offered = signal<readonly ToolInfo[] | null>(null);

function useOffered(): void {
  const mode = modeId.value;
  useEffect(() => {
    if (!mode) return;
    void ask<ToolInfo[]>("GET", `/v1/tools?mode=${encodeURIComponent(mode)}`).then((found) => {
      if (found && mode === modeId.peek()) offered.value = found;
    });
  }, [mode]);
}

function listOf(key: string): string[] | null {
  const value = values.value[key]?.value;
  return Array.isArray(value) ? (value as string[]) : null;
}

export function Tools() {
  useOffered();
  const tools = offered.value;
  if (!tools) return <p class={css.hint}>Loading…</p>;
  if (!tools.length) return <p class={css.hint}>The mode {modeTitle.value} offers no tools.</p>;
  const servers = [...new Set(tools.flatMap(({ name }) => mcpServerOf(name) ?? []))];
  const own = tools.filter(({ name }) => mcpServerOf(name) === null);
  return (
    <>
      {own.map((tool) => (
        <Tool key={tool.name} tool={tool} title={tool.name} />
      ))}
      {servers.map((server) => (
        <Server key={server} server={server} all={servers} tools={tools.filter(({ name }) => mcpServerOf(name) === server)} />
      ))}
      {["tools_disabled", "mcp_servers"].map((key) => refusals.value[key] && <p class={css.wrong}>{refusals.value[key]}</p>)}
    </>
  );
}

function Server({ server, all, tools }: { server: string; all: readonly string[]; tools: readonly ToolInfo[] }) {
  const chosen = listOf("mcp_servers");
  const isOn = chosen?.includes(server) ?? true;
  const toggle = (on: boolean) => {
    const next = toggled(chosen ?? all, server, on);
    // Switching on all servers resets the parameter, so that servers which are added later are on too.
    void set("mcp_servers", all.every((one) => next.includes(one)) ? null : next);
  };
  return (
    <fieldset class={css.server}>
      <legend>
        <label>
          <input type="checkbox" role="switch" checked={isOn} onChange={(event) => toggle(event.currentTarget.checked)} />
          {server} <span class={css.hint}>MCP server, {tools.length} tools</span>
        </label>
      </legend>
      {isOn && tools.map((tool) => <Tool key={tool.name} tool={tool} title={shownName(tool.name)} />)}
    </fieldset>
  );
}

function Tool({ tool, title }: { tool: ToolInfo; title: string }) {
  const disabled = listOf("tools_disabled");
  const server = mcpServerOf(tool.name);
  const isWhole = server !== null && (disabled ?? []).includes(`mcp__${server}__*`);
  return (
    <label class={css.tool}>
      <input
        type="checkbox"
        role="switch"
        disabled={isWhole}
        checked={!isWhole && !(disabled ?? []).includes(tool.name)}
        onChange={(event) => {
          const next = toggled(disabled, tool.name, !event.currentTarget.checked);
          void set("tools_disabled", next.length ? next : null);
        }}
      />
      <span class={css.what}>
        <span class={css.name}>{title}</span>
        <span class={css.policy}>{POLICIES[tool.policy]}</span>
        <span class={css.about}>{tool.description}</span>
      </span>
    </label>
  );
}
