/**
 * The frame that everything stands in: the list, the chat, the developer's drawer; on a phone the chat alone, above
 * which the list slides in and the drawer spreads. It measures and opens; what stands in it is the rooms' affair.
 */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { Composer } from "../composer/composer.tsx";
import { Drawer } from "../drawer/drawer.tsx";
import { isTravelling, Journey } from "../drawer/way.tsx";
import { Sidebar } from "../sidebar/sidebar.tsx";
import { isDrawerOpen, isNarrow, isShortcutsOpen, isSidebarOpen } from "../state/layout.ts";
import { route } from "../state/route.ts";
import { failure, isReady, past } from "../state/session.ts";
import { isSigningIn } from "../state/signing.ts";
import { Thread } from "../thread/thread.tsx";
import { Questions, Suggestions } from "../tools/index.tsx";
import { ConnectionBar } from "./connection.tsx";
import { Gone, NoSuchAddress } from "./gone.tsx";
import { lazyOf } from "./lazy.tsx";
import { Notices } from "./notices.tsx";
import { heedKeys } from "./shortcuts.tsx";
import css from "./frame.module.css";


/** Loaded right after the page is shown: messages may have to wait offline, when nothing can be loaded any more. */
const Queue = lazyOf(() => import("../composer/queue.tsx").then((room) => room.Queue));
const SignIn = lazyOf(() => import("./sign_in.tsx").then((room) => room.SignIn));
const ShortcutList = lazyOf(() => import("./shortcut_list.tsx").then((room) => room.ShortcutList));

// Whoever chose a chat on a phone wants to see it.
effect(() => {
  if (route.value && isNarrow.peek()) isSidebarOpen.value = false;
});

export function App() {
  useEffect(heedKeys, []);
  useFocusOfList();
  const isCovered = isNarrow.value && (isSidebarOpen.value || isDrawerOpen.value);
  return (
    <div class={css.app}>
      <a class={css.skip} href="#composer" onClick={skip}>Skip to the message</a>
      <Sidebar />
      <main class={css.chat} data-past={past.value || (failure.value && isReady.value) ? "" : undefined} inert={isCovered}>
        <ConnectionBar />
        {isTravelling.value && <Journey />}
        {route.value.isUnknown ? <NoSuchAddress /> : <Thread />}
        {failure.value && <Gone wrong={failure.value} />}
        {/* Of the past there is nothing to answer; what is half written waits behind it. */}
        <div class={css.foot} id="composer" hidden={past.value !== null || failure.value !== null || route.value.isUnknown}>
          <Questions />
          <Suggestions />
          <Queue />
          <Composer />
        </div>
      </main>
      <Drawer />
      <Notices />
      {isShortcutsOpen.value && <ShortcutList />}
      {isSigningIn.value && <SignIn />}
    </div>
  );
}

/** On a phone the list takes the focus when it comes, and gives it back when it goes. */
function useFocusOfList(): void {
  const isAbove = isNarrow.value && isSidebarOpen.value;
  const wasAbove = useRef(false);
  useLayoutEffect(() => {
    if (isAbove) {
      const list = document.querySelector<HTMLElement>("nav");
      if (!list?.contains(document.activeElement)) list?.querySelector<HTMLElement>("[aria-current], button")?.focus();
    } else if (wasAbove.current && (document.activeElement === document.body || document.activeElement?.closest("nav"))) {
      document.querySelector<HTMLElement>("main > header button")?.focus();
    }
    wasAbove.current = isAbove;
  }, [isAbove]);
}

function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>("textarea[aria-label=Message]")?.focus();
}
