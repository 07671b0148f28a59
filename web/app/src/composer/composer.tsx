/**
 * The message box with its buttons. A chat and its address are created by the first message.
 *
 * While a run is open there are three ways to send a message, or an edited message: it waits in the queue (Enter), it
 * is answered after the present step (Alt+Enter), or it stops the run and is answered at once (Ctrl+Enter).
 */

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { activePath, textOf } from "threadcast-client";

import type { When } from "../state/actions.ts";
import { isDrawerOpen, isSettingsOpen, isSidebarOpen } from "../state/layout.ts";
import { route } from "../state/route.ts";
import { chat, isRunning, notify, notifyOf, state } from "../state/session.ts";
import { edit, editing, send, stopEditing, targetId, write, written } from "../state/writing.ts";
import { Icon, IconButton } from "../ui/icon.tsx";
import { lazyOf } from "../ui/lazy.tsx";
import { Pickers } from "./pickers.tsx";
import { PlaceChips } from "./context_chips.tsx";
import { Typing, typed } from "./typing.tsx";
import { isTyped, plainText } from "./typed.ts";
import { attach, forgetRefusals, refuse, uploads } from "./uploads.ts";
import css from "./composer.module.css";

const Attached = lazyOf(() => import("./attached.tsx").then((room) => room.Attached));

/** Without a real keyboard Enter makes a new line, and only the button sends. */
const hasKeyboard = matchMedia("(hover: hover) and (pointer: fine)");
const isDropping = signal(false);

export function stop(): void {
  try {
    chat.peek()?.send({ type: "abort" });
  } catch (wrong) {
    notifyOf(wrong);
  }
}

export function Composer() {
  const box = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const { text, files } = written.value;
  const isBusy = isRunning.value;
  const isEditing = editing.value !== null;
  const isWaiting = uploads.value.some(({ target, error }) => !error && target === targetId());
  const isEmpty = !text.trim() && !files.length && !editing.value?.parts.length;

  const hasWays = isBusy && !isEmpty;

  useDrop();
  useStopKey();
  useEffect(() => grow(box.current), [text]);
  useLayoutEffect(() => {
    if (hasKeyboard.matches || isEditing) box.current?.focus();
  }, [route.value.chatId === null, isEditing]);

  const submit = (when: When = "queue") => {
    const target = targetId();
    const ours = uploads.peek().filter((upload) => upload.target === target);
    if (ours.some(({ error }) => !error)) return notify("The files are still being uploaded.");
    if (ours.some(({ mayRetry }) => mayRetry)) return notify("A file could not be uploaded. Upload it again or remove it, then send.");
    if (isEmpty) return;
    send(isBusy ? when : "queue");
    forgetRefusals(target);
    typed("");
  };
  const keys = (event: KeyboardEvent) => {
    if (!isTyped(event)) return;
    const isBare = !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
    const isStopping = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && !event.shiftKey && (hasKeyboard.matches || isStopping || event.altKey)) {
      submit(isStopping ? "stop" : event.altKey ? "next" : "queue");
    } else if (event.key === "Escape" && isEditing) stopEditing();
    else if (event.key === "ArrowUp" && isBare && isEmpty && !isEditing && !isBusy) {
      if (!editLast()) return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <form
      class={isDropping.value ? `${css.composer} ${css.dropping}` : css.composer}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Typing />
      <div class={css.writing}>
        {isEditing && (
          <p class={css.editing}>
            <Icon name="edit" /> Editing your last message; sending makes a branch
            <IconButton name="close" label="Stop editing" onClick={stopEditing} />
          </p>
        )}
        {!isEditing && <PlaceChips />}
        {(files.length > 0 || uploads.value.length > 0) && <Attached />}
        <textarea
          ref={box}
          dir="auto"
          rows={1}
          aria-label="Message"
          placeholder={isBusy ? "Write the next message" : "Write a message"}
          enterkeyhint={hasKeyboard.matches ? "send" : "enter"}
          value={text}
          onInput={(event) => {
            write({ text: event.currentTarget.value });
            typed(event.currentTarget.value);
          }}
          onBlur={() => typed("")}
          onKeyDown={keys}
          onPaste={(event) => {
            if (isEditing) return;
            const pasted = event.clipboardData?.files.length ? event.clipboardData.files : plainText(event.clipboardData, text);
            if (!pasted) return;
            event.preventDefault();
            attach(pasted);
          }}
        />
        <div class={hasWays ? `${css.tools} ${css.ways}` : css.tools}>
          <IconButton name="attach" label="Attach files" disabled={isEditing} onClick={() => file.current?.click()} />
          <input
            ref={file}
            type="file"
            multiple
            hidden
            aria-label="Files to attach"
            onChange={(event) => {
              attach([...(event.currentTarget.files ?? [])]);
              event.currentTarget.value = "";
            }}
          />
          <Pickers />
          <span class={css.space} />
          {hasWays && (
            <>
              <button type="button" class={css.way} title="Send after the present step (Alt+Enter)" onClick={() => submit("next")}>
                Next
              </button>
              <button type="button" class={css.way} title="Stop the answer and send now (Ctrl+Enter)" onClick={() => submit("stop")}>
                Stop and send
              </button>
            </>
          )}
          {isBusy && (
            <button type="button" class={`${css.disc} ${css.stop}`} aria-label="Stop" title="Stop (Escape)" onClick={stop}>
              <Icon name="stop" />
            </button>
          )}
          <button
            type="submit"
            class={`${css.disc} primary`}
            aria-label={isBusy ? "Queue" : "Send"}
            title={isBusy ? "Queue: send after the answer (Enter)" : "Send (Enter)"}
            disabled={isEmpty || isWaiting}
          >
            <Icon name={isBusy ? "queue" : "send"} />
          </button>
        </div>
      </div>
    </form>
  );
}

/** Fits the box to its text in browsers without `field-sizing`. */
function grow(box: HTMLTextAreaElement | null): void {
  if (!box || CSS.supports("field-sizing", "content")) return;
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

/** Puts the newest message of a person into the box for editing. Returns false if there is no such message. */
function editLast(): boolean {
  const last = activePath(state.peek()).reverse().find((message) => message.role === "user" && !message.hidden);
  if (!last) return false;
  const parts = typeof last.content === "string" ? [] : last.content.filter((part) => part.type !== "text");
  edit(last.message_id, textOf(last), parts);
  return true;
}

/** Files may be dropped anywhere on the page. */
function useDrop(): void {
  useEffect(() => {
    const over = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      isDropping.value = !editing.peek();
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) isDropping.value = false;
    };
    const drop = (event: DragEvent) => {
      isDropping.value = false;
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      if (editing.peek()) return;
      const folders = new Set([...event.dataTransfer.items].flatMap((item) => (item.webkitGetAsEntry()?.isDirectory ? [item.getAsFile()?.name ?? "It"] : [])));
      for (const name of folders) refuse(name, "this is a folder. Choose the files in it.");
      attach([...event.dataTransfer.files].filter(({ name }) => !folders.has(name)));
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, []);
}

/** Stops the run on Escape, unless a dialog, a menu or a panel is open, which Escape closes first. */
function useStopKey(): void {
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !isTyped(event) || event.defaultPrevented || !isRunning.peek()) return;
      const isOpen = isSettingsOpen.peek() || isSidebarOpen.peek() || document.querySelector("dialog[open], [role=menu]");
      const isInField = (event.target as HTMLElement).matches("input, select, [contenteditable]");
      if (isOpen || isInField || (isDrawerOpen.peek() && document.activeElement?.closest("aside"))) return;
      event.preventDefault();
      stop();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
}
