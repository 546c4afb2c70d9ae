"use strict";
// Shows the entries that have every word typed and the verdict chosen; index.html?q=WORDS&v=VERDICT begins with them.
const box = document.getElementById("filter");
const verdict = document.getElementById("verdict");
const count = document.getElementById("count");
const entries = [...document.querySelectorAll(".entry")].map((element) => ({
  element,
  verdicts: element.dataset.verdicts.split("|"),
  text: element.dataset.text,
}));

function apply() {
  const typed = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { element, verdicts, text } of entries) {
    const hit = typed.every((word) => text.includes(word)) && (!verdict.value || verdicts.includes(verdict.value));
    element.hidden = !hit;
    shown += hit;
  }
  const all = !typed.length && !verdict.value;
  count.textContent = all ? `${shown} entries` : `${shown} of ${entries.length} entries`;
  // The summary is of everything; and a heading above nothing is hidden too.
  document.getElementById("summary").hidden = !all;
  for (const section of document.querySelectorAll("main > section:not(#summary)")) {
    section.hidden = !section.querySelector(".entry:not([hidden])");
  }
}

const asked = new URLSearchParams(location.search);
box.value = asked.get("q") ?? "";
verdict.value = asked.get("v") ?? "";
box.addEventListener("input", apply);
verdict.addEventListener("change", apply);
apply();
