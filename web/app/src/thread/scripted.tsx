/** Labels an answer, or the whole server, as a demonstration without a model, and explains how to configure a model. */

import { useState } from "preact/hooks";

import { caps, isScripted } from "../state/caps.ts";
import { lazyOf } from "../ui/lazy.tsx";
import css from "./scripted.module.css";

const HowTo = lazyOf(() => import("./how_to.tsx").then((room) => room.HowTo));

/**
 * Shows nothing if a model wrote the answer. With `isOfServer` the text is about all answers of the server, and
 * otherwise about one answer.
 */
export function ScriptNote({ model, isOfServer = false }: { model: string; isOfServer?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  if (!isScripted(model)) return null;
  const isUnconfigured = isScripted(caps.value?.chat_default_model ?? model);
  return (
    <p class={css.note}>
      {isOfServer ? wordsOfServer(model) : wordsOf(model, isUnconfigured)}{" "}
      {isUnconfigured && <button type="button" onClick={() => setOpen(true)}>How to configure one</button>}
      {isOpen && <HowTo onClose={() => setOpen(false)} />}
    </p>
  );
}

function wordsOf(model: string, isUnconfigured: boolean): string {
  if (!isUnconfigured) return "Demo answer: no model has written it.";
  return model.startsWith("demo/") ? "Demo answer: no model is configured." : "Demo answer: a script plays the model.";
}

function wordsOfServer(model: string): string {
  return model.startsWith("demo/")
    ? "No model is configured, so answers are demonstrations."
    : "A script plays the model here, so answers are demonstrations.";
}
