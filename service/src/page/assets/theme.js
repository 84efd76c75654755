// Before anything is painted: the mode that was chosen here, or else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("wakeq-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage, it is the system's.
  }
})();
