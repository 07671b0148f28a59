/**
 * The layout of the page: the list, the chat and the developer's drawer. On a phone only the chat is visible; the list
 * slides over it, and the drawer covers it.
 */

import { effect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { Composer } from "../composer/composer.tsx";
import { Drawer } from "../drawer/drawer.tsx";
import { isTravelling, Journey } from "../drawer/way.tsx";
import { Sidebar } from "../sidebar/sidebar.tsx";
import { isDrawerOpen, isNarrow, isShortcutsOpen, isSidebarOpen } from "../state/layout.ts";
import { route } from "../state/route.ts";
import { failure, isReady, earlier } from "../state/session.ts";
import { isSigningIn, leaving } from "../state/signing.ts";
import { Thread } from "../thread/thread.tsx";
import { Questions, Suggestions } from "../tools/index.tsx";
import { ConnectionBar } from "./connection.tsx";
import { lazyOf } from "./lazy.tsx";
import { Notices } from "./notices.tsx";
import { heedKeys } from "./shortcuts.tsx";
import { SigningOut } from "./signing_out.tsx";
import css from "./frame.module.css";


/**
 * The queue's code is loaded right after the page is shown, because messages may wait while the page is offline and can
 * load no code.
 */
const Queue = lazyOf(() => import("../composer/queue.tsx").then((room) => room.Queue));
const Gone = lazyOf(() => import("./gone.tsx").then((room) => room.Gone));
const NoSuchAddress = lazyOf(() => import("./gone.tsx").then((room) => room.NoSuchAddress));
const SignIn = lazyOf(() => import("./sign_in.tsx").then((room) => room.SignIn));
const ShortcutList = lazyOf(() => import("./shortcut_list.tsx").then((room) => room.ShortcutList));

// On a phone, choosing a chat closes the list.
effect(() => {
  if (route.value && isNarrow.peek()) isSidebarOpen.value = false;
});

export function App() {
  useEffect(heedKeys, []);
  useFocusOfList();
  if (leaving.value !== null) return <SigningOut />;
  const isCovered = isNarrow.value && (isSidebarOpen.value || isDrawerOpen.value);
  return (
    <div class={css.app}>
      <a class={css.skip} href="#composer" onClick={skip}>Skip to the message</a>
      <Sidebar />
      <main class={css.chat} data-past={earlier.value || (failure.value && isReady.value) ? "" : undefined} inert={isCovered}>
        <ConnectionBar />
        {isTravelling.value && <Journey />}
        {route.value.isUnknown ? <NoSuchAddress /> : <Thread />}
        {failure.value && <Gone wrong={failure.value} />}
        {/* There is no message box during time travel; a draft is kept meanwhile. */}
        <div class={css.foot} id="composer" hidden={earlier.value !== null || failure.value !== null || route.value.isUnknown}>
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

/** On a phone the list takes the focus when it opens, and gives it back when it closes. */
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
