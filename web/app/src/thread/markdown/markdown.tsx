/**
 * Shows a text in Markdown, also while it grows: finished blocks are not drawn again, and in the last block only the
 * changes are drawn.
 *
 * `pressed` handles all clicks inside (such as copying code), because the blocks are not components.
 */

import type { Ref } from "preact";
import { useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { copied } from "../../ui/clipboard.ts";
import { lazyOf } from "../../ui/lazy.tsx";
import { memo } from "../../ui/memo.ts";
import { enlarge } from "../enlarged.ts";
import { Canvas } from "./canvas.tsx";
import { draw, isReplaced, replaceContent, replaceElement } from "./draw.ts";
import { heightOfFormula, setFormulas, typeset, wantFormulas } from "./formulas.ts";
import type { DiagramProps } from "./diagrams.tsx";
import { DETAILS_MAX_DEPTH, detailsAt, noteParts } from "./grammar.ts";
import { arrivals, coloured } from "./highlight.ts";
import { mathBlockAt } from "./math.ts";
import { goToNote, notesOf, numbered, read, type Note } from "./notes.ts";
import { formula, toTrees } from "./render.ts";
import { sizes } from "./sizes.ts";
import { fenceOf, settled, Splitter } from "./split.ts";
import { holds, type Tree } from "./tree.ts";
import { useAwaited } from "./waiting.ts";
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
  /** The number of `<details>` elements around this text. */
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
  const awaited = useAwaited(blocks, isGrowing, drawAhead);
  return (
    <>
      {blocks.slice(0, awaited + 1).map((raw, at) => (
        <Block
          key={at}
          raw={raw}
          definitions={raw.includes("[") ? definitions : ""}
          notes={labels[at]?.length ? notesOf(labels[at], at, footnotes) : ""}
          prefix={prefix}
          isOpen={isGrowing && at === last}
          isAwaited={at === awaited}
          depth={depth}
        />
      ))}
      {written.length > 0 && awaited > last && <Footnotes notes={written} lastLabel={noteParts(split.notes.at(-1) ?? "").label} definitions={definitions} prefix={prefix} isGrowing={isGrowing} />}
      {awaited <= last && <span data-held hidden />}
    </>
  );
}

interface BlockProps {
  raw: string;
  definitions: string;
  notes: string;
  prefix: string;
  isOpen: boolean;
  /** A diagram that is not drawn yet is shown as its source. */
  isAwaited: boolean;
  depth: number;
}

const Block = memo(function Block({ raw, definitions, notes, prefix, isOpen, isAwaited, depth }: BlockProps) {
  const fence = fenceOf(raw);
  if (fence) return <Fenced {...fence} isClosed={(fence.isClosed || !isOpen) && !isAwaited} />;
  if (isOpen && mathBlockAt(raw)?.isClosed === false) return <Begun tex={raw} />;
  const folded = depth < DETAILS_MAX_DEPTH && /^ {0,3}</.test(raw) ? detailsAt(raw) : null;
  if (folded) {
    return (
      <details data-block open={folded.isUnfolded}>
        <summary>
          <Drawn trees={treesOf(isOpen ? settled(folded.summary) : folded.summary || "Details", definitions, notes, prefix)} isOpen={isOpen} />
        </summary>
        <Growing text={folded.body} isGrowing={isOpen && !folded.isClosed} depth={depth + 1} />
      </details>
    );
  }
  return <Drawn trees={treesOf(isOpen ? settled(raw) : raw, definitions, notes, prefix)} isOpen={isOpen} />;
});

function treesOf(raw: string, definitions: string, notes: string, prefix: string): Tree[] {
  return toTrees(raw, definitions, notes ? read(notes, prefix) : undefined);
}

/** Draws trees, and adds their formulas, coloured code and diagrams. */
function Drawn({ trees, isOpen }: { trees: readonly Tree[]; isOpen: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!box.current) return;
    draw(box.current, trees);
    finish(box.current, isOpen);
  });
  // These signals are read here, so that this component is drawn again when KaTeX and languages are loaded.
  void (holds(trees, "data-math") && typeset.value);
  void (holds(trees, "class", "code") && arrivals.value);
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

function drawAhead(source: string): Promise<unknown> {
  return loadDiagrams().then((room) => room.drawAhead(source));
}

/** A placeholder as high as the diagram will be, as far as this height is known. */
function Reserved({ source, heightBefore }: DiagramProps) {
  return (
    <>
      <figcaption>
        <span>mermaid</span>
        <button type="button" disabled>Copy</button>
      </figcaption>
      <Canvas source={source} size={sizes.of(source)} heightBefore={heightBefore} isEstimated={!sizes.of(source)} />
    </>
  );
}

/** The placeholder for a formula whose end has not arrived. */
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
  const figure = useRef<HTMLElement>(null);
  const heightBefore = useRef(0);
  if (language === "math") return isClosed ? <Drawn trees={[formula(code, true, "div")]} isOpen={false} /> : <Begun tex={code} />;
  if (language !== "mermaid") return <Code code={code} language={language} isClosed={isClosed} />;
  if (!isClosed) void loadDiagrams().then((room) => room.prepare(), () => undefined); // loaded in time
  if (!isClosed) return <Code code={code} language={language} isClosed={false} figure={figure} />;
  heightBefore.current ||= figure.current?.querySelector("pre")?.offsetHeight ?? 0; // its source is still shown
  return <figure data-block dir="ltr"><Diagram source={code} heightBefore={heightBefore.current} /></figure>;
}

function Footnotes({ notes, lastLabel, definitions, prefix, isGrowing }: FootnotesProps) {
  return (
    <section data-block data-notes aria-label="Footnotes">
      <ol>
        {notes.map(({ label, text, number }) => (
          <li key={label} value={number} id={`${prefix}-note-${number}`} tabIndex={-1} dir="auto">
            <Drawn trees={treesOf(isGrowing && label === lastLabel ? settled(text) : text, definitions, "", prefix)} isOpen={isGrowing} />{" "}
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

/**
 * Shows fenced code. The code's text grows in place, so that a selection stays; the code is coloured once its fence is
 * closed.
 */
function Code({ code, language, isClosed, figure }: FencedProps & { figure?: Ref<HTMLElement> }) {
  const painted = isClosed ? coloured(code, language) : null;
  return (
    <figure data-block dir="ltr" ref={figure}>
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
    replaceElement(asked, image);
    return;
  }
  if (target instanceof HTMLImageElement && !target.closest("a")) enlarge(target.src, target.alt, target.closest("[data-canvas]") !== null);
}

const SAID_MS = 1_500;

function say(button: HTMLButtonElement, word: string): void {
  button.textContent = word;
  setTimeout(() => (button.textContent = "Copy"), SAID_MS);
}
