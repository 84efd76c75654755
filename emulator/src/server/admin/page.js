
// The page as it is now takes the place of what is shown, so that nothing flickers and the place on it stays.
setInterval(async () => {
  if (document.hidden || !getSelection().isCollapsed) return;
  try {
    const answer = await fetch("/", { headers: { accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const shown = document.querySelector("main");
    if (fresh && fresh.innerHTML !== shown.innerHTML) shown.replaceWith(fresh);
    document.title = "Pub/Sub emulator";
  } catch {
    document.title = "Pub/Sub emulator (away)";
  }
}, 2000);
