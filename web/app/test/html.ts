/** Writes trees as HTML, so that tests can compare them. */

import type { Tree } from "../src/thread/markdown/tree.ts";

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const VOID = new Set(["br", "hr", "img", "input"]);

export function htmlOf(trees: readonly Tree[]): string {
  return trees.map(one).join("");
}

function one(tree: Tree): string {
  if (typeof tree === "string") return escaped(tree);
  const attributes = Object.entries(tree.attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`);
  return `<${tree.tag}${attributes.join("")}>${VOID.has(tree.tag) ? "" : `${htmlOf(tree.children)}</${tree.tag}>`}`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => ENTITIES[sign] as string);
}
