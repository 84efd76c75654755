// What has changed takes the place of what is shown, so that nothing flickers and the place on the page stays.
const title = document.title;
const pause = document.getElementById("pause");
// After a sleep, a connection may be open on this side only, and never answer.
const PATIENCE_MS = 10_000;
let paused = false;
let asking = false;
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Continue" : "Pause";
});
setInterval(async () => {
  if (asking || paused || document.hidden || !getSelection().isCollapsed) return;
  asking = true;
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, signal });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = answer.ok ? title : title + " (gone)";
    if (paused || !answer.ok) return;
    for (const shown of document.querySelectorAll(".live")) {
      const part = fresh.getElementById(shown.id);
      if (part && part.innerHTML !== shown.innerHTML && !shown.matches(":focus-within, :active")) shown.replaceWith(part);
    }
  } catch {
    document.title = title + " (away)";
  } finally {
    asking = false;
  }
}, 2000);
