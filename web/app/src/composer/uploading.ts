/**
 * Uploads files. `fetch` does not report the progress of an upload, so these are the page's only requests by
 * XMLHttpRequest.
 */

import type { BlobStored } from "threadcast-client";

import { limit } from "../state/caps.ts";
import { isRefused } from "../state/session.ts";
import { caller } from "../state/storage.ts";
import { token } from "../state/token.ts";
import { addFile, targetId, written } from "../state/writing.ts";
import { isImage, refusalOf } from "./files.ts";
import { change, uploads, type Upload } from "./uploads.ts";

/**
 * Addresses of pictures that were chosen or shown in this page, by the hash of their upload. Each address keeps the
 * picture's file in memory.
 */
const previews = new Map<string, string>();
/**
 * The number of kept pictures, enough for a few messages full of pictures. A removed picture is fetched from the server
 * when it is shown again.
 */
const PREVIEWS_MAX_COUNT = 32;

export function previewOf(hash: string): string | undefined {
  return previews.get(hash);
}

export function keepPreview(hash: string, picture: Blob): string {
  const known = previews.get(hash);
  if (known !== undefined) return known;
  for (const [oldest, url] of previews) {
    if (previews.size < PREVIEWS_MAX_COUNT) break;
    URL.revokeObjectURL(url);
    previews.delete(oldest);
  }
  const url = URL.createObjectURL(picture);
  previews.set(hash, url);
  return url;
}

/** More parallel uploads would only share the bandwidth. */
const AT_ONCE = 2;
const requests = new Map<string, XMLHttpRequest>();
/** The ids of the uploads that were checked and may start. */
const begun = new Set<string>();

/** Checks an attached file and queues it for the upload; also called to repeat a failed upload. */
export function begin(id: string): void {
  const all = uploads.peek();
  const upload = all.find((one) => one.id === id);
  if (!upload) return; // the person removed the file
  const limits = {
    images_max_count: limit("images_max_count"),
    binary_max_bytes: limit("binary_max_bytes"),
    blob_max_bytes: Math.min(limit("blob_max_bytes"), limit("body_max_bytes")),
    parts_max_count: limit("parts_max_count"),
  };
  const before = all.filter((one) => one.target === upload.target && begun.has(one.id) && !one.error && one !== upload);
  const files = upload.target === targetId() ? written.peek().files : [];
  const there = [...files, ...before.map((one) => ({ mime: one.file.type }))];
  begun.add(id);
  change(id, { progress: 0, error: refusalOf(upload.file, there, limits) ?? undefined, mayRetry: false });
  next();
}

export function cancelUpload(id: string): void {
  requests.get(id)?.abort();
  requests.delete(id);
  uploads.value = uploads.peek().filter((one) => one.id !== id);
  next();
}

function next(): void {
  for (const upload of uploads.peek()) {
    if (requests.size >= AT_ONCE) return;
    if (!upload.error && begun.has(upload.id) && !requests.has(upload.id)) start(upload);
  }
}

function start({ id, target, file }: Upload): void {
  const request = new XMLHttpRequest();
  requests.set(id, request);
  request.open("POST", `/v1/chats/${target}/blobs`);
  request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
  const bearer = token();
  if (bearer) request.setRequestHeader("Authorization", `Bearer ${bearer}`);
  if (caller) request.setRequestHeader("Threadcast-Principal", caller);
  request.responseType = "json";
  request.upload.onprogress = ({ loaded, total }) => change(id, { progress: total ? loaded / total : 0 });
  request.onload = () => {
    if (request.status === 201) return arrived(id, target, file, request.response as BlobStored);
    if (request.status === 401) {
      isRefused.value = true;
      return fail(id, "the upload failed, because you are signed out. Sign in and try again.", true);
    }
    const said = (request.response as { detail?: string } | null)?.detail;
    const mayRetry = request.status >= 500 || request.status === 429;
    fail(id, `the upload failed: ${said ?? `the server answered ${request.status}`}${mayRetry ? ". Try again." : ""}`, mayRetry);
  };
  request.onerror = () => fail(id, "the upload failed, because the connection was lost. Try again.", true);
  request.send(file);
}

function arrived(id: string, target: string, file: File, stored: BlobStored): void {
  if (isImage(stored.mime)) keepPreview(stored.hash, file);
  addFile(target, { name: file.name || "file", mime: stored.mime, bytes: stored.bytes, url: stored.url, hash: stored.hash });
  cancelUpload(id);
}

function fail(id: string, error: string, mayRetry: boolean): void {
  requests.delete(id);
  change(id, { error, mayRetry });
  next();
}
