/**
 * Shows a text in Markdown, also while it grows: finished blocks stay as they were drawn, and in the last block only the
 * changes are drawn anew.
 *
 * What a reader may do inside (copy code, see an image) is heard in one place, `pressed`, since the blocks are HTML.
 */

import { useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { copied } from "../../ui/clipboard.ts";
import { lazyOf } from "../../ui/lazy.tsx";
import { memo } from "../../ui/memo.ts";
import { enlarge } from "../enlarged.ts";
import { clean } from "./clean.ts";
import { heightOfFormula, setFormulas, typeset, wantFormulas } from "./formulas.ts";
import { DETAILS_MAX_DEPTH, detailsAt, noteParts } from "./grammar.ts";
import { heightOf } from "./heights.ts";
import { arrivals, coloured } from "./highlight.ts";
import { mathBlockAt } from "./math.ts";
import { goToNote, notesOf, numbered, read, type Note } from "./notes.ts";
import { isReplaced, patch, replaceContent } from "./patch.ts";
import { formulaHtml, toHtml } from "./render.ts";
import { fenceOf, settled, Splitter } from "./split.ts";
import css from "./markdown.module.css";

export const Markdown = memo(function Markdown({ text, isGrowing = false }: { text: string; isGrowing?: boolean }) {
  return (
    <div class={css.markdown} onClick={pressed}>
      <Growing text={text} isGrowing={isGrowing} depth={0} />
    </div>
  );
});

interface GrowingProps {
  text: string;
  isGrowing: boolean;
  /** How many levels of `<details>` this text is within. */
  depth: number;
}

function Growing({ text, isGrowing, depth }: GrowingProps) {
  const [splitter] = useState(() => new Splitter());
  const prefix = useId();
  const split = useMemo(() => splitter.take(text), [text]);
  const { blocks, definitions, labels } = split;
  const footnotes = numbered(split, isGrowing);
  const written = footnotes.notes.filter((note) => note.text);
  const last = blocks.length - 1;
  return (
    <>
      {blocks.map((raw, at) => (
        <Block
          key={at}
          raw={raw}
          definitions={raw.includes("[") ? definitions : ""}
          notes={labels[at]?.length ? notesOf(labels[at], at, footnotes) : ""}
          prefix={prefix}
          isOpen={isGrowing && at === last}
          depth={depth}
        />
      ))}
      {written.length > 0 && <Footnotes notes={written} lastLabel={noteParts(split.notes.at(-1) ?? "").label} definitions={definitions} prefix={prefix} isGrowing={isGrowing} />}
    </>
  );
}

interface BlockProps {
  raw: string;
  definitions: string;
  notes: string;
  prefix: string;
  isOpen: boolean;
  depth: number;
}

const Block = memo(function Block({ raw, definitions, notes, prefix, isOpen, depth }: BlockProps) {
  const fence = fenceOf(raw);
  if (fence) return <Fenced {...fence} isClosed={fence.isClosed || !isOpen} />;
  if (isOpen && mathBlockAt(raw)?.isClosed === false) return <Begun tex={raw} />;
  const folded = depth < DETAILS_MAX_DEPTH && /^ {0,3}</.test(raw) ? detailsAt(raw) : null;
  if (folded) {
    return (
      <details data-block open={folded.isUnfolded}>
        <summary>
          <Html html={html(isOpen ? settled(folded.summary) : folded.summary || "Details", definitions, notes, prefix)} isOpen={isOpen} />
        </summary>
        <Growing text={folded.body} isGrowing={isOpen && !folded.isClosed} depth={depth + 1} />
      </details>
    );
  }
  return <Html html={html(isOpen ? settled(raw) : raw, definitions, notes, prefix)} isOpen={isOpen} />;
});

function html(raw: string, definitions: string, notes: string, prefix: string): string {
  return clean(toHtml(raw, definitions, notes ? read(notes, prefix) : undefined));
}

/** Shows HTML, and adds its formulas, coloured code and diagrams. */
function Html({ html, isOpen }: { html: string; isOpen: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (box.current) patch(box.current, html);
  }, [html]);
  useLayoutEffect(() => {
    if (box.current) finish(box.current, isOpen);
  });
  // Read here, so that this component is drawn again when KaTeX and languages are loaded.
  void (html.includes("data-math") && typeset.value);
  void (html.includes("<code class") && arrivals.value);
  return <div data-block ref={box} />;
}

function finish(box: HTMLElement, isOpen: boolean): void {
  setFormulas(box);
  const codes = [...box.querySelectorAll<HTMLElement>("code[class^=language-]")].filter((code) => !isReplaced(code));
  // Code at the end of a growing text is not complete yet.
  if (isOpen && codes.length && box.textContent?.endsWith(codes.at(-1)?.textContent ?? "")) codes.pop();
  const diagrams = codes.filter((code) => code.className === DIAGRAM);
  if (diagrams.length) void loadDiagrams().then((room) => room.drawNested(diagrams));
  for (const code of codes) {
    const painted = coloured(code.textContent ?? "", code.className.slice("language-".length));
    if (painted !== null) replaceContent(code, () => (code.innerHTML = painted));
  }
}

const DIAGRAM = "language-mermaid";
const loadDiagrams = () => import("./diagrams.tsx");
const Diagram = lazyOf(() => loadDiagrams().then((room) => room.Diagram), Reserved);

/** A placeholder as high as the diagram will be. */
function Reserved({ source }: { source: string }) {
  return (
    <>
      <figcaption>
        <span>mermaid</span>
        <button type="button" disabled>Copy</button>
      </figcaption>
      <div data-canvas aria-busy style={{ height: `${heightOf(source)}px` }} />
    </>
  );
}

/** A formula of which the end has not come. */
function Begun({ tex }: { tex: string }) {
  wantFormulas();
  return <div data-block role="img" aria-label="A formula is being written" data-begun style={{ minHeight: heightOfFormula(tex) }} />;
}

interface FencedProps {
  code: string;
  language: string;
  isClosed: boolean;
}

function Fenced({ code, language, isClosed }: FencedProps) {
  if (language === "math") return isClosed ? <Html html={clean(formulaHtml(code, true, "div"))} isOpen={false} /> : <Begun tex={code} />;
  if (language !== "mermaid") return <Code code={code} language={language} isClosed={isClosed} />;
  if (!isClosed) void loadDiagrams().then((room) => room.prepare(), () => undefined); // loaded in time
  return isClosed ? <figure data-block dir="ltr"><Diagram source={code} /></figure> : <Code code={code} language={language} isClosed={false} />;
}

function Footnotes({ notes, lastLabel, definitions, prefix, isGrowing }: FootnotesProps) {
  return (
    <section data-block data-notes aria-label="Footnotes">
      <ol>
        {notes.map(({ label, text, number }) => (
          <li key={label} value={number} id={`${prefix}-note-${number}`} tabIndex={-1} dir="auto">
            <Html html={html(isGrowing && label === lastLabel ? settled(text) : text, definitions, "", prefix)} isOpen={isGrowing} />
            <a href={`#${prefix}-ref-${number}`} data-note aria-label={`Back to reference ${number}`}>
              ↩
            </a>
          </li>
        ))}
      </ol>
    </section>
  );
}

interface FootnotesProps {
  notes: readonly Note[];
  /** The label of the note at the end of the text, which may not be complete yet. */
  lastLabel: string;
  definitions: string;
  prefix: string;
  isGrowing: boolean;
}

/** Fenced code: its text grows in place, so that what is selected stays so; it is coloured once its fence is closed. */
function Code({ code, language, isClosed }: FencedProps) {
  const painted = isClosed ? coloured(code, language) : null;
  return (
    <figure data-block dir="ltr">
      <figcaption>
        <span>{language || "text"}</span>
        <button type="button" data-copy="code">
          Copy
        </button>
      </figcaption>
      <pre tabIndex={0} aria-label={`Code, ${language || "text"}`}>
        {painted === null ? <code key="plain">{code}</code> : <code key="painted" dangerouslySetInnerHTML={{ __html: painted }} />}
      </pre>
    </figure>
  );
}

function pressed(event: MouseEvent): void {
  const target = event.target as HTMLElement;
  const note = target.closest<HTMLAnchorElement>("a[data-note]");
  if (note && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    goToNote(note);
    return;
  }
  const copy = target.closest<HTMLButtonElement>("button[data-copy]");
  if (copy) {
    const code = copy.closest("figure")?.querySelector("code")?.textContent ?? "";
    void copied(code.replace(/\n$/, "")).then((isDone) => say(copy, isDone ? "Copied" : "Not copied"));
    return;
  }
  const asked = target.closest<HTMLButtonElement>("button[data-image]");
  if (asked) {
    const image = new Image();
    image.alt = asked.querySelector("span")?.textContent ?? "";
    image.referrerPolicy = "no-referrer";
    image.src = asked.dataset.image ?? "";
    asked.replaceWith(image);
    return;
  }
  if (target instanceof HTMLImageElement && !target.closest("a")) enlarge(target.src, target.alt);
}

const SAID_MS = 1_500;

function say(button: HTMLButtonElement, word: string): void {
  button.textContent = word;
  setTimeout(() => (button.textContent = "Copy"), SAID_MS);
}
