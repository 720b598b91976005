// A model's text as a document. It may be hostile: HTML in it is shown as the text that it is, and
// of what Markdown makes only what writes text remains: no picture, no style, no form, no attribute
// that a script of ours listens to. What is too long stays as it is.
const MOST_CHARACTERS = 50_000;
const KEPT = {
  ALLOWED_TAGS: "p br hr strong em del code pre blockquote ul ol li h1 h2 h3 h4 h5 h6 table thead tbody tr th td a".split(" "),
  ALLOWED_ATTR: ["href", "title", "start"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};
const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const { DOMPurify, marked } = globalThis;

const escaped = (text) => text.replace(/[&<>"]/g, (character) => ESCAPED[character]);
marked.use({ renderer: { html: ({ text }) => escaped(text), image: ({ text }) => escaped(text) } });

export function render(element, text) {
  const fragment = text.length <= MOST_CHARACTERS ? documentOf(text) : null;
  element.classList.toggle("plain-text", !fragment);
  element.replaceChildren(fragment ?? text);
}

function documentOf(text) {
  let html;
  try {
    html = marked.parse(text, { async: false });
  } catch {
    return null; // nested beyond what it can follow
  }
  const fragment = DOMPurify.sanitize(html, KEPT);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    link.title = link.href;
  }
  for (const block of fragment.querySelectorAll("pre, table")) block.tabIndex = 0;
  // The corner of a table is the head of nothing.
  for (const corner of fragment.querySelectorAll("th:empty")) corner.replaceWith(document.createElement("td"));
  // Below the heading of its model; what levels a model takes is its own affair.
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const lower = document.createElement("h3");
    lower.replaceChildren(...heading.childNodes);
    heading.replaceWith(lower);
  }
  return fragment;
}
