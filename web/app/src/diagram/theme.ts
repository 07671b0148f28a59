/** Colours for the slices of a pie. Colour-blind people can distinguish these colours, and text on them is readable. */
const LIGHT = ["#9fd3c4", "#f3c98b", "#b9c4ee", "#efb0a8", "#d6dd94", "#d9b8e3", "#a9d8ec", "#d8cfc0"];
const DARK = ["#2f7564", "#8a6427", "#4b5a9c", "#93483f", "#6a7230", "#74498a", "#2b6f88", "#6b6355"];

/** Returns the page's colours (styles/base.css) as numbers, since Mermaid computes shades from them. */

export function themeVariables(isDark: boolean): Record<string, string | boolean> {
  const [ink, ground, fill, border, line, second, third, note] = isDark
    ? ["#e6ebe8", "#1b2220", "#24403a", "#6cc7ae", "#98a8a2", "#33383f", "#2a2f2d", "#4a4326"]
    : ["#1c2321", "#ffffff", "#e4f1ed", "#1f6f5c", "#56635f", "#eef0f4", "#f4f6f5", "#fdf4d8"];
  return {
    darkMode: isDark,
    background: ground,
    primaryColor: fill,
    primaryTextColor: ink,
    primaryBorderColor: border,
    secondaryColor: second,
    secondaryTextColor: ink,
    tertiaryColor: third,
    tertiaryTextColor: ink,
    lineColor: line,
    textColor: ink,
    noteBkgColor: note,
    noteTextColor: ink,
    noteBorderColor: line,
    edgeLabelBackground: ground,
    fontSize: "15px",
    ...Object.fromEntries((isDark ? DARK : LIGHT).map((colour, at) => [`pie${at + 1}`, colour])),
    pieStrokeWidth: "1px",
    pieOuterStrokeWidth: "1px",
    pieStrokeColor: ground,
    pieOuterStrokeColor: line,
  } as Record<string, string | boolean>;
}
