/** One chat of the list: its state, its title, and its menu. */

import { useRef, useState } from "preact/hooks";
import { newId, type ChatSummary } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { addressOf } from "../state/route.ts";
import { fetched } from "../ui/lazy.tsx";
import { memo } from "../ui/memo.ts";
import { Menu } from "../ui/menu.tsx";
import { MARK_WORDS, type Mark } from "./groups.ts";
import { titleOf } from "../ui/title.ts";
import css from "./sidebar.module.css";

interface Props {
  chat: ChatSummary;
  mark: Mark;
  isCurrent: boolean;
  isChild?: boolean;
  onOpen: (chatId: string) => void;
  onDelete: (chat: ChatSummary) => void;
}

const transfer = () => fetched(() => import("./transfer.ts"));

/** The longest title that the server accepts (PROTOCOL §16). */
const TITLE_MAX_CHARACTERS = 200;

/** The list is drawn again with every change of the feed, so rows without a change are skipped. */
export const Row = memo((props: Props) => <Inner {...props} />);

function Inner({ chat, mark, isCurrent, isChild, onOpen, onDelete }: Props) {
  const [isRenaming, setRenaming] = useState(false);
  const link = useRef<HTMLAnchorElement>(null);
  const says = MARK_WORDS[mark];
  const title = titleOf(chat.title);
  if (isRenaming) {
    const end = (name: string | null) => {
      setRenaming(false);
      // The link exists again only after this component is drawn.
      queueMicrotask(() => link.current?.focus());
      if (name && name !== chat.title) void rename(chat.id, name);
    };
    return (
      <li class={`${css.row} ${css.renaming}`}>
        <TitleInput title={chat.title} onEnd={end} />
      </li>
    );
  }
  return (
    <li class={isChild ? `${css.row} ${css.child}` : css.row}>
      <a
        ref={link}
        href={addressOf(chat.id)}
        title={title}
        aria-current={isCurrent ? "page" : undefined}
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          onOpen(chat.id);
        }}
        onDblClick={() => setRenaming(true)}
        onKeyDown={(event) => {
          if (event.key === "F2") setRenaming(true);
          else if (event.key === "Delete") onDelete(chat);
        }}
      >
        <span class={css.mark} data-mark={mark} />
        <span class={css.name} dir="auto">{title}</span>
        {says && <span class="visually-hidden">, {says}</span>}
      </a>
      <Menu
        label={`Actions for ${title}`}
        items={[
          { label: "Rename", icon: "edit", onSelect: () => setRenaming(true) },
          { label: "Export", icon: "download", onSelect: () => void transfer().then((room) => room?.exportChat(chat.id, title)) },
          { label: "Export as Markdown", icon: "file", onSelect: () => void transfer().then((room) => room?.exportMarkdown(chat.id, title)) },
          { label: "Delete", icon: "trash", isDangerous: true, onSelect: () => onDelete(chat) },
        ]}
      />
    </li>
  );
}

/** Enter and leaving the field save the new title, Escape does not. */
function TitleInput({ title, onEnd }: { title: string; onEnd: (name: string | null) => void }) {
  const isOver = useRef(false);
  const end = (name: string | null) => {
    if (isOver.current) return;
    isOver.current = true;
    onEnd(name);
  };
  return (
    <input
      dir="auto"
      aria-label="Title"
      defaultValue={title}
      maxLength={TITLE_MAX_CHARACTERS}
      ref={(box) => {
        if (!box || document.activeElement === box) return;
        box.focus();
        box.select();
      }}
      onKeyDown={(event) => {
        if (event.isComposing) return;
        if (event.key === "Enter") end(event.currentTarget.value.trim());
        else if (event.key === "Escape") end(null);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
      onBlur={(event) => end(event.currentTarget.value.trim())}
    />
  );
}

async function rename(chatId: string, title: string): Promise<void> {
  const command = { type: "set_params", client_request_id: newId(), patch: { title } };
  await ask("POST", `/v1/chats/${chatId}/commands`, command);
}
