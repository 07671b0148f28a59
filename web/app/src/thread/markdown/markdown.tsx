/**
 * A text in Markdown, also while it grows: finished blocks stay as they were drawn, the last one is drawn anew.
 *
 * What a reader may do inside (copy code, see an image) is heard in one place, `pressed`, since the blocks are HTML.
 */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { copied } from "../../ui/clipboard.ts";
import { enlarge } from "../enlarged.ts";
import { memo } from "../../ui/memo.ts";
import { clean } from "./clean.ts";
import { colour, coloured } from "./highlight.ts";
import { toHtml } from "./render.ts";
import { fenceOf, settled, Splitter } from "./split.ts";
import css from "./markdown.module.css";

export const Markdown = memo(function Markdown({ text, isGrowing = false }: { text: string; isGrowing?: boolean }) {
  return <Growing text={text} isGrowing={isGrowing} />;
});

function Growing({ text, isGrowing }: { text: string; isGrowing: boolean }) {
  const [splitter] = useState(() => new Splitter());
  const { blocks, definitions } = useMemo(() => splitter.take(text), [text]);
  const last = blocks.length - 1;
  return (
    <div class={css.markdown} onClick={pressed}>
      {blocks.map((raw, at) => (
        <Block key={at} raw={raw} definitions={raw.includes("[") ? definitions : ""} isOpen={isGrowing && at === last} />
      ))}
    </div>
  );
}

interface BlockProps {
  raw: string;
  definitions: string;
  isOpen: boolean;
}

const Block = memo(function Block({ raw, definitions, isOpen }: BlockProps) {
  const fence = fenceOf(raw);
  if (fence) return <Code {...fence} isClosed={fence.isClosed || !isOpen} />;
  return <Html html={html(isOpen ? settled(raw) : raw, definitions)} />;
});

function html(raw: string, definitions: string): string {
  return clean(toHtml(raw, definitions));
}

function Html({ html }: { html: string }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const code of box.current?.querySelectorAll<HTMLElement>("code[class^=language-]") ?? []) {
      const painted = coloured(code.textContent ?? "", code.className.slice("language-".length));
      if (painted !== null) code.innerHTML = painted;
    }
  }, [html, colour.value]);
  return <div data-block ref={box} dangerouslySetInnerHTML={{ __html: html }} />;
}

/** Fenced code: its text grows in place, so that what is selected stays so; it is coloured once its fence is closed. */
function Code({ code, language, isClosed }: { code: string; language: string; isClosed: boolean }) {
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
