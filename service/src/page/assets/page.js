// What pages do in the browser. Without it, everything can be read and done all the same; it adds
// live numbers, times in the reader's zone, keys, and copying.
(() => {
  "use strict";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Times: the distance from now, and on hover the exact moment in the reader's zone.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const spell = (seconds) => {
    const far = Math.abs(seconds);
    if (far < 1) return "now";
    const [unit, size] = units.find(([name, size]) => far >= size * (name === "d" ? 2 : 1)) ?? units[3];
    const words = `${Math.floor(far / size)} ${unit}`;
    return seconds > 0 ? `in ${words}` : `${words} ago`;
  };
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const clock = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
  const tell = (within = document) => {
    for (const time of all("time[datetime]", within)) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.textContent = time.dataset.exact === undefined ? spell((at.getTime() - Date.now()) / 1000) : clock.format(at);
      time.title = `${exact.format(at)} (${time.dateTime})`;
    }
  };
  setInterval(tell, 5000);

  // Live numbers: the server sends the part of the page that has changed, while somebody looks.
  let source = null;
  let paused = false;
  let latest = null;
  const say = (word) => all("[data-watching]").forEach((place) => (place.textContent = word));
  const close = () => {
    source?.close();
    source = null;
  };
  const watch = () => {
    close();
    if (paused || document.hidden || !document.getElementById("live")) return;
    source = new EventSource(location.href);
    source.addEventListener("open", () => say("Live"));
    source.addEventListener("error", ({ target }) => {
      say(target.readyState === EventSource.CLOSED ? "Not live: load the page again" : "Reconnecting");
    });
    source.addEventListener("live", (event) => {
      latest = event.data;
      renew();
    });
  };
  // What somebody has ticked, or is about to press or copy, stays where it is, and is renewed later.
  const renew = () => {
    const live = document.getElementById("live");
    if (!live || paused || latest === null) return;
    if (live.querySelector("input:checked")) return say("Waits for your selection");
    const selection = document.getSelection();
    const busy = live.contains(document.activeElement) || (!selection.isCollapsed && live.contains(selection.anchorNode));
    if (busy || live.matches(":hover") && live.querySelector("a:active")) return;
    live.innerHTML = latest;
    latest = null;
    window.htmx?.process(live);
    tell(live);
    say("Live");
  };
  setInterval(renew, 2000);
  const pause = () => {
    paused = !paused;
    tellPaused();
    watch();
  };
  const tellPaused = () => {
    all("[data-pause]").forEach((button) => (button.textContent = paused ? "Go on" : "Pause"));
    say(paused ? "Paused" : "Live");
  };
  document.addEventListener("visibilitychange", watch);
  window.addEventListener("pagehide", close);

  // What a filter or a way through a list has found is there, in place of what was before. htmx tells
  // it for each part of that.
  let settling = null;
  const settled = () => {
    latest = null;
    tell();
    tellPaused();
    watch();
    if (document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
  };
  document.addEventListener("htmx:afterSettle", () => {
    clearTimeout(settling);
    settling = setTimeout(settled);
  });
  // What is refused is a page of its own, or the whole page with the reason.
  document.addEventListener("htmx:responseError", (event) => location.assign(event.detail.pathInfo.finalRequestPath));

  // The mode: dark, light, as the system has it.
  const shift = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("wakeq-theme", root.dataset.theme);
    } catch {
      // It lasts as long as the page.
    }
  };

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it by hand";
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, a[data-back]");
    if (!button) return;
    if (button.matches("[data-pause]")) pause();
    if (button.matches("[data-theme-switch]")) shift();
    if (button.matches("[data-copy]")) copy(button);
    if (button.matches("[data-back]")) {
      event.preventDefault();
      history.back();
    }
    if (button.matches("[data-menu]")) {
      const open = document.body.classList.toggle("menu");
      button.setAttribute("aria-expanded", String(open));
    }
  });

  // Select all of a list.
  document.addEventListener("change", (event) => {
    const name = event.target.dataset?.all;
    if (name) all(`input[name="${CSS.escape(name)}"]`).forEach((box) => (box.checked = event.target.checked));
  });

  // Times in what was said.
  for (const place of all(".said")) {
    if (place.children.length > 0) continue;
    const parts = place.textContent.split(/(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC/);
    const moment = (text) => {
      const time = document.createElement("time");
      time.dateTime = `${text.replace(" ", "T")}Z`;
      time.dataset.exact = "";
      return time;
    };
    place.replaceChildren(...parts.map((part, at) => (at % 2 ? moment(part) : part)));
  }

  // Moments are typed in the reader's zone, and sent in UTC.
  const local = (at) => new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of all("input[data-moment]")) {
    const sent = Object.assign(document.createElement("input"), { type: "hidden", name: field.name, value: field.value });
    field.removeAttribute("name");
    field.after(sent);
    if (field.value) field.value = local(new Date(`${field.value}Z`));
    field.addEventListener("input", () => {
      sent.value = field.value ? new Date(field.value).toISOString().slice(0, 16) : "";
    });
    all(`[data-zone="${CSS.escape(field.id)}"]`).forEach((place) => (place.textContent = `your time, ${zone}`));
  }
  const set = (field, at) => {
    field.value = at ? local(at) : "";
    field.dispatchEvent(new Event("input"));
  };

  // Ends that people think in, such as 8 in the morning, which is today to those who are up before.
  const ends = () => {
    const now = new Date();
    const at = (days, hour) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + days, hour);
    const monday = (8 - now.getDay()) % 7 || 7;
    const near = [["today", at(0, 8)], ["today", at(0, 18)], ["tomorrow", at(1, 8)]];
    const ahead = monday > 1 ? [...near, ["on Monday", at(monday, 8)]] : near;
    return ahead.filter(([, end]) => end > now);
  };
  const hour = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
  for (const place of all("[data-ends]")) {
    const field = document.getElementById(place.dataset.ends);
    const instead = document.getElementById(place.dataset.instead);
    for (const [day, end] of ends()) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.textContent = `${hour.format(end)} ${day}`;
      button.addEventListener("click", () => {
        set(field, end);
        if (instead) instead.value = "";
        all("button", place).forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      });
      button.setAttribute("aria-pressed", "false");
      place.append(button);
    }
    // One says either how long, or until when.
    instead?.addEventListener("change", () => {
      if (!instead.value) return;
      set(field, null);
      all("button", place).forEach((one) => one.setAttribute("aria-pressed", "false"));
    });
    place.hidden = false;
  }

  // A form that changes something is sent once, however often one clicks.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent !== undefined) event.preventDefault();
    form.dataset.sent = "";
    setTimeout(() => delete form.dataset.sent, 10000);
  });

  // Filters that are kept in this browser, for this page of this canvas: their names and addresses.
  const filters = (place) => {
    const key = `wakeq-filters ${location.pathname}`;
    const most = 30;
    const read = () => {
      try {
        const kept = JSON.parse(localStorage.getItem(key));
        return Array.isArray(kept) ? kept.slice(0, most) : [];
      } catch {
        return [];
      }
    };
    const write = (kept) => {
      try {
        localStorage.setItem(key, JSON.stringify(kept.slice(-most)));
      } catch {
        // The address holds the filter all the same.
      }
      draw();
    };
    const without = (title) => read().filter((one) => one.title !== title);
    const item = ({ title, query }) => {
      const link = document.createElement("a");
      link.href = `?${query}`;
      link.textContent = title;
      const forget = document.createElement("button");
      forget.type = "button";
      forget.className = "plain";
      forget.textContent = "Forget";
      forget.setAttribute("aria-label", `Forget the filter ${title}`);
      forget.addEventListener("click", () => write(without(title)));
      const line = document.createElement("li");
      line.append(link, " ", forget);
      return line;
    };
    const draw = () => place.querySelector("ul").replaceChildren(...read().map(item));
    place.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const field = place.querySelector("input");
      const title = field.value.trim();
      if (!title) return;
      const given = [...new URLSearchParams(location.search)].filter(([name, value]) => value.trim() && name !== "cursor");
      write([...without(title), { title, query: new URLSearchParams(given).toString() }]);
      field.value = "";
    });
    draw();
    place.hidden = false;
  };
  all("[data-saved]").forEach(filters);

  // A request to copy names the server that the page came from.
  for (const place of all("[data-server]")) {
    const named = (text) => text.replaceAll("$WAKEQ_SERVER", location.origin + place.dataset.server);
    for (const code of all("code", place)) code.textContent = named(code.textContent);
    for (const button of all("[data-copy]", place)) button.dataset.copy = named(button.dataset.copy);
  }

  // Keys.
  let going = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (going) {
      going = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
      return;
    }
    if (event.key === "g") going = true;
    else if (event.key === "p") pause();
    else if (event.key === "?") document.getElementById("help")?.showModal();
    else if (event.key === "/") {
      const filter = document.querySelector("form.filter input:not([type=hidden])");
      const field = filter ?? document.getElementById("find");
      if (!field) return;
      event.preventDefault();
      field.focus();
    }
  });

  tell();
  watch();
})();
