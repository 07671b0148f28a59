/** Icons: 24 units square, in the colour of the text. Screen readers skip icons and read the label of the button. */

const PATHS = {
  add: "M12 5v14M5 12h14",
  attach: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4L14.5 7",
  back: "M15 6l-6 6 6 6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  developer: "M8 7l-5 5 5 5M16 7l5 5-5 5M14 4l-4 16",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  fork: "M6 4v6a4 4 0 0 0 4 4h8M14 10l4 4-4 4M6 10v10",
  forward: "M9 6l6 6-6 6",
  history: "M4 12a8 8 0 1 0 3-6.2M4 4v4h4M12 8v4l3 2",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M6 12a1 1 0 1 1-2 0 1 1 0 0 1 2 0zM13 12a1 1 0 1 1-2 0 1 1 0 0 1 2 0zM20 12a1 1 0 1 1-2 0 1 1 0 0 1 2 0z",
  open: "M6 9l6 6 6-6",
  person: "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4.5 20a7.5 7.5 0 0 1 15 0",
  play: "M8 5l11 7-11 7z",
  queue: "M4 6h16M4 11h10M4 16h7M17 13v7M14 17l3 3 3-3",
  retry: "M20 12a8 8 0 1 1-2.3-5.7M20 4v4h-4",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16 16l5 5",
  send: "M12 20V5M6 11l6-6 6 6",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  stop: "M7 7h10v10H7z",
  tool: "M14 6a4 4 0 0 1 5 5l-9 9-4-4 9-9M14 6l-2 2",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** A button with only an icon. `label` is its name and its tooltip. */
export function IconButton({
  name,
  label,
  onClick,
  ...more
}: {
  name: IconName;
  label: string;
  onClick?: (event: MouseEvent) => void;
  disabled?: boolean;
  pressed?: boolean;
}) {
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={label}
      aria-pressed={more.pressed}
      title={label}
      disabled={more.disabled}
      onClick={onClick}
    >
      <Icon name={name} />
    </button>
  );
}
