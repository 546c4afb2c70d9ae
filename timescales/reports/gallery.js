"use strict";
// Shows the entries that have every word typed and the verdict chosen; gallery.html?q=WORDS&v=VERDICT begins with them.
const box = document.getElementById("filter");
const verdict = document.getElementById("verdict");
const count = document.getElementById("count");
const entries = [...document.querySelectorAll(".entry")].map((element) => ({
  element,
  card: document.querySelector(`[data-for="${element.id}"]`),
  words: element.dataset.words.split("|"),
  text: element.textContent.toLowerCase(),
}));

function apply() {
  const typed = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { element, card, words, text } of entries) {
    const hit = typed.every((word) => text.includes(word)) && (!verdict.value || words.includes(verdict.value));
    element.hidden = !hit;
    if (card) card.hidden = !hit;
    shown += hit;
  }
  count.textContent = shown === entries.length ? `${shown} entries` : `${shown} of ${entries.length} entries`;
  // A heading above nothing is hidden too.
  for (const heading of document.querySelectorAll("main > h3")) {
    heading.hidden = ![...heading.nextElementSibling.children].some((card) => !card.hidden);
  }
}

// A link to an entry that is shut, or hidden by the filter, opens it.
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target || !target.matches(".entry")) return;
  if (target.hidden) {
    box.value = verdict.value = "";
    apply();
  }
  target.querySelector("details").open = true;
  target.scrollIntoView();
}

const asked = new URLSearchParams(location.search);
box.value = asked.get("q") ?? "";
verdict.value = asked.get("v") ?? "";
box.addEventListener("input", apply);
verdict.addEventListener("change", apply);
addEventListener("hashchange", open);
apply();
open();
