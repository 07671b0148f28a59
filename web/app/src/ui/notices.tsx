/** Shows notices: errors in the server's own words, and information. */

import { useEffect, useRef } from "preact/hooks";

import { dismiss, notices, type Notice } from "../state/session.ts";
import { IconButton } from "./icon.tsx";
import css from "./frame.module.css";

/**
 * The time for which a harmless notice is shown: long enough to read a sentence twice. A notice stays open while it is
 * under the pointer or has the focus.
 */
const HARMLESS_MS = 6_000;

export function Notices() {
  // Both regions always exist, because a screen reader announces new content of a region, but not a new region.
  return (
    <div class={css.notices}>
      <div role="status">{notices.value.filter((notice) => notice.isHarmless).map((notice) => <One key={notice.id} notice={notice} />)}</div>
      <div role="alert">{notices.value.filter((notice) => !notice.isHarmless).map((notice) => <One key={notice.id} notice={notice} />)}</div>
    </div>
  );
}

function One({ notice: { id, text, isHarmless } }: { notice: Notice }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isHarmless) return;
    const timer = setInterval(() => {
      if (!box.current?.matches(":hover, :focus-within")) dismiss(id);
    }, HARMLESS_MS);
    return () => clearInterval(timer);
  }, [id, isHarmless]);
  return (
    <div class={isHarmless ? css.notice : `${css.notice} ${css.wrong}`} ref={box}>
      <span>{text}</span>
      <IconButton name="close" label="Dismiss" onClick={() => dismiss(id)} />
    </div>
  );
}
