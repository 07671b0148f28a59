/** Loads the code of rare parts of messages when the first such part is shown. */

import { lazyOf } from "../ui/lazy.tsx";
import type { OtherPart, Part } from "./parts.tsx";
import css from "./thread.module.css";

const Shown = lazyOf(() => import("./parts.tsx").then((room) => room.Parts), Placeholders);

export function Parts({ parts }: { parts: readonly Part[] }) {
  const others = parts.filter((part) => part.type !== "text");
  return others.length ? <Shown parts={others} /> : null;
}

/** A placeholder of the final size. */
function Placeholders({ parts }: { parts: readonly OtherPart[] }) {
  return (
    <div class={css.parts} aria-busy="true">
      {parts.map((part, at) =>
        part.type === "file" ? <button key={at} type="button" class={css.file} disabled>{part.name}</button>
        : part.type === "image_url" ? <span key={at} class={css.picture} />
        : <audio key={at} controls />,
      )}
    </div>
  );
}

export const Editor = lazyOf(() => import("./editor.tsx").then((room) => room.Editor), Unedited);

function Unedited({ text }: { text: string }) {
  return <div class={css.bubble} dir="auto">{text}</div>;
}

export const MessageQuestions = lazyOf(() => import("./questions.tsx").then((room) => room.MessageQuestions));
export const WayBack = lazyOf(() => import("./way_back.tsx").then((room) => room.WayBack));
export const Lightbox = lazyOf(() => import("./lightbox.tsx").then((room) => room.Lightbox));
