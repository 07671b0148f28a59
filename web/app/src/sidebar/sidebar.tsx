/**
 * The caller's chats with their live states, newest first. On a narrow screen the sidebar is a drawer above the open
 * chat.
 */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { ChatSummary } from "threadcast-client";

import { isSettingsOpen, isSidebarOpen } from "../state/layout.ts";
import { go, route } from "../state/route.ts";
import { chats } from "../state/session.ts";
import "../state/theme.ts";
import { Icon, IconButton } from "../ui/icon.tsx";
import { fetched, lazyOf } from "../ui/lazy.tsx";
import { Account } from "./account.tsx";
import { byDay, markOf } from "./groups.ts";
import { family, hasMore, isLoading, listed, loadMore, SEARCH_MAX_CHARACTERS, words } from "./list.ts";
import { lookedAt } from "./looked.ts";
import { Row } from "./row.tsx";
import css from "./sidebar.module.css";

const Settings = lazyOf(() => import("../settings/settings.tsx").then((room) => room.Settings));
const ConfirmDelete = lazyOf(() => import("./confirm_delete.tsx").then((room) => room.ConfirmDelete));

/** The chat to delete, while the dialog asks the person to confirm. */
const doomed = signal<ChatSummary | null>(null);
const today = signal(new Date());

function open(chatId: string | null): void {
  go(chatId);
  isSidebarOpen.value = false;
  if (chatId === null) document.querySelector<HTMLElement>("textarea[aria-label=Message]")?.focus();
}

export function Sidebar() {
  const root = useRef<HTMLElement>(null);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
      const key = event.key.toLowerCase();
      if (key === "o" && event.shiftKey) open(null);
      else if (key === "k" && !event.shiftKey) {
        isSidebarOpen.value = true;
        // The box is drawn before the next key is read, so it can take the focus here.
        queueMicrotask(() => root.current?.querySelector<HTMLElement>("[type=search]")?.focus());
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useMidnight();

  const escape = (event: KeyboardEvent) => {
    if (event.key === "Escape" && isSidebarOpen.value) {
      isSidebarOpen.value = false;
      event.stopPropagation();
    } else walk(event, root.current);
  };
  return (
    <>
      <nav class={isSidebarOpen.value ? `${css.sidebar} ${css.open}` : css.sidebar} aria-label="Chats" ref={root} onKeyDown={escape}>
        <div class={css.sidebarHead}>
          <button class={css.new} title="New chat (Ctrl+Shift+O)" onClick={() => open(null)}>
            <Icon name="add" /> New chat
          </button>
          <label class={css.search}>
            <Icon name="search" />
            <input
              dir="auto"
              type="search"
              aria-label="Search chats"
              placeholder="Search"
              maxLength={SEARCH_MAX_CHARACTERS}
              value={words.value}
              onInput={(event) => (words.value = event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== "Escape" || !words.value) return;
                words.value = "";
                event.stopPropagation();
              }}
            />
          </label>
        </div>
        <Chats />
        <Account />
        <Foot />
      </nav>
      {isSidebarOpen.value && <div class={css.sidebarShade} onClick={() => (isSidebarOpen.value = false)} />}
      {doomed.value && <ConfirmDelete chat={doomed.value} onClose={() => (doomed.value = null)} />}
      {isSettingsOpen.value && <Settings />}
    </>
  );
}

function Chats() {
  const { isLive, refused, reason } = chats.value;
  const shown = listed.value;
  const current = route.value.chatId;
  const row = (chat: ChatSummary, isChild = false) => (
    <Row
      key={chat.id}
      chat={chat}
      mark={chat.id === current && !isChild ? quietened(chat) : markOf(chat, isChild ? Infinity : lookedAt(chat.id))}
      isCurrent={chat.id === current}
      isChild={isChild}
      onOpen={open}
      onDelete={doom}
    />
  );
  const children = family.value;
  return (
    <div class={css.sidebarList}>
      {byDay(shown, today.value).map((group) => (
        <section key={group.name} aria-label={group.name}>
          <h2>{group.name}</h2>
          <ul>
            {group.chats.flatMap((chat) =>
              chat.id === children.parentId ? [row(chat), ...children.chats.map((child) => row(child, true))] : [row(chat)],
            )}
          </ul>
        </section>
      ))}
      {refused && <p class={css.hint}>{refused}</p>}
      {!refused && !shown.length && (
        <p class={css.hint}>{!isLive && reason ? "The list will appear when the server can be reached." : isLoading.value || !isLive ? "Loading…" : words.value.trim() ? "No chat has this in its title." : "Your chats will appear here."}</p>
      )}
      {hasMore.value && (
        <button class={css.more} disabled={isLoading.value} onClick={() => void loadMore()}>
          {isLoading.value ? "Loading…" : "Show older chats"}
        </button>
      )}
    </div>
  );
}

/** The open chat is never marked as new. */
function quietened(chat: ChatSummary) {
  return markOf(chat, Infinity);
}

function doom(chat: ChatSummary): void {
  doomed.value = chat;
}

function Foot() {
  const file = useRef<HTMLInputElement>(null);
  return (
    <footer class={css.sidebarFoot}>
      <button class={css.quiet} onClick={() => (isSettingsOpen.value = true)}>
        <Icon name="settings" /> Settings
      </button>
      <IconButton name="upload" label="Import chats" onClick={() => file.current?.click()} />
      <input
        ref={file}
        type="file"
        accept=".jsonl,application/jsonl"
        hidden
        aria-label="File of exported chats"
        onChange={(event) => {
          const chosen = event.currentTarget.files?.[0];
          event.currentTarget.value = "";
          if (chosen) void fetched(() => import("./transfer.ts")).then((room) => room?.importChats(chosen));
        }}
      />
    </footer>
  );
}

/** Arrow keys move through the list from the focused item; Home and End go to its ends. */
function walk(event: KeyboardEvent, root: HTMLElement | null): void {
  const target = event.target as HTMLElement;
  if (!root || target.closest(`[role=menu], .${css.renaming}`)) return;
  const links = [...root.querySelectorAll<HTMLElement>(`.${css.row} a`)];
  const at = links.findIndex((link) => link.closest("li")?.contains(target));
  const isInSearch = target.matches("[type=search]");
  const to =
    event.key === "ArrowDown" ? at + 1
    : event.key === "ArrowUp" ? at - 1
    : isInSearch ? undefined
    : event.key === "Home" ? 0
    : event.key === "End" ? links.length - 1
    : undefined;
  if (to === undefined || (at < 0 && !isInSearch && !target.matches("a, button"))) return;
  const next = to < 0 ? root.querySelector<HTMLElement>("[type=search]") : links[Math.min(to, links.length - 1)];
  next?.focus();
  event.preventDefault();
}

/** The groups by day change at midnight, and when a sleeping computer wakes up. */
function useMidnight(): void {
  useEffect(() => {
    const look = () => {
      if (new Date().toDateString() !== today.peek().toDateString()) today.value = new Date();
    };
    document.addEventListener("visibilitychange", look);
    const now = new Date();
    const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1).getTime();
    const timer = setTimeout(() => (today.value = new Date()), midnight - now.getTime() + 1_000);
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(timer);
    };
  }, [today.value]);
}
