/**
 * The library's own page: it shows a report, its articles and a search, and tells the chat at its side which tab is open.
 * The two pages exchange only two messages and the chat's event `threadcast:action` (docs/page.md).
 */

const ARTICLES = { "a-1": "Naps and recall, 48 people.", "a-2": "A night without sleep, 210 people." };

const PLACES = {
  start: { title: "Start", text: "Choose a report. The assistant at the side gets no context yet." },
  reports: { title: "Sleep and memory", text: "A report by A. Moreau, 2025.", context: { report_id: "r-7" } },
  "reports/articles": {
    title: "Articles of “Sleep and memory”",
    text: Object.entries(ARTICLES).map(([id, text]) => `${id}: ${text}`).join(" "),
    context: { report_id: "r-7" },
  },
  "reports/articles/pubmed": { title: "PubMed", text: "Search the titles of PubMed.", context: { report_id: "r-7" } },
};

const chat = document.querySelector("iframe");
const page = document.querySelector("#page");

// After a reload the reader sees the same tab, and the same chat beside it.
let place = sessionStorage.getItem("place") ?? "reports";
chat.src = (sessionStorage.getItem("chat") ?? "/") + chat.dataset.begin;
addEventListener("pagehide", () => {
  sessionStorage.setItem("place", place);
  sessionStorage.setItem("chat", chat.contentWindow.location.pathname); // the chat's page has this page's origin
});

function show(next) {
  place = next;
  const { title, text } = PLACES[place];
  write(title, text);
  for (const button of document.querySelectorAll("[data-place]")) {
    if (button.dataset.place === place) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  tell();
}

function write(title, text) {
  const heading = document.createElement("h2");
  heading.textContent = title;
  const paragraph = document.createElement("p");
  paragraph.textContent = text;
  page.replaceChildren(heading, paragraph);
}

/** Tells the chat where the reader is; null removes the context. The chat has the same origin as this page. */
function tell() {
  const { title, context } = PLACES[place];
  const known = context ? { title, scope: place.split("/"), ...context } : null;
  // The card is for the library's own API; a real page would get it when its reader signs in.
  const authorization = "Bearer card-of-the-reader";
  chat.contentWindow.postMessage({ type: "threadcast.context", context: known, authorization }, location.origin);
}

/** Carries out a button below an answer. `preventDefault` tells the chat that this page knows the action. */
function act(event) {
  const id = event.detail.label.split(" ").at(-1);
  if (event.detail.action !== "open_article" || !ARTICLES[id]) return;
  event.preventDefault();
  show("reports/articles");
  write(`Article ${id}`, ARTICLES[id]);
}

// The chat sends a message when it is ready, also after a reload.
addEventListener("message", (event) => {
  if (event.source !== chat.contentWindow || event.origin !== location.origin || event.data?.type !== "threadcast.ready") return;
  chat.contentWindow.addEventListener("threadcast:action", act);
  tell();
});
for (const button of document.querySelectorAll("[data-place]")) button.addEventListener("click", () => show(button.dataset.place));
show(place);
