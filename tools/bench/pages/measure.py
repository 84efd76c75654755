"""Asks every dashboard the twelve questions five times, in turns, and prints a table.

    measure.py WAKEQ_URL WAKEQ_KEY BOSS_URL BOSS_DATABASE PGQ_URL PGQ_DATABASE
"""

import statistics
import sys

from own import Wakeq
from rivals import PgBoss, Pgqueuer
from ui import Ui

REPEATS = 5
QUESTIONS = {
    "where_is": "Where is the mail of order 9123, and why was it not sent?",
    "what_fails": "What fails most right now, and since when?",
    "how_long": "How long is the queue, and does it grow?",
    "redrive": "Bring back everything that failed with this error",
    "pause": "Pause this handler until 8, with a reason",
    "who_paused": "Who has paused this handler, and why?",
    "which_worker": "Which worker runs this job?",
    "takes_all": "Which customer takes all places?",
    "cron": "When does the nightly cron run next, and did its last run succeed?",
    "cancel": "Cancel this running job",
    "value": "What were this job's value and result?",
    "waits": "How long do events wait now, and how long yesterday?",
}


def main(dashboards, browsers):
    found = {}
    for turn in range(REPEATS + 1):
        for dashboard, ui in zip(dashboards, browsers):
            for question in QUESTIONS:
                ask = getattr(dashboard, question)
                if ask is None:
                    continue
                dashboard.prepare(question)
                seconds = ask(ui)
                # The first turn warms what is read from the disk and compiled.
                if turn > 0:
                    taken = found.setdefault((question, dashboard.name), [])
                    taken.append((seconds, ui.clicks, ui.fields))
    print("| Question |", " | ".join(dashboard.name for dashboard in dashboards), "|")
    print("|---" * (1 + len(dashboards)) + "|")
    for question, words in QUESTIONS.items():
        print("|", words, "|", " | ".join(cell(found.get((question, d.name))) for d in dashboards), "|")


def cell(taken):
    if not taken:
        return "cannot"
    seconds = statistics.median(second for second, _, _ in taken)
    _, clicks, fields = taken[0]
    typed = f" + {fields} typed" if fields else ""
    return f"{clicks}{typed}, {seconds:.1f} s"


if __name__ == "__main__":
    wakeq, key, boss, boss_database, pgq, pgq_database = sys.argv[1:]
    own = Wakeq(wakeq, key)
    browser = Ui()
    own.sign_in(browser)
    # One browser for all, so that one page is open at a time.
    try:
        main([own, PgBoss(boss, boss_database), Pgqueuer(pgq, pgq_database)], [browser] * 3)
    finally:
        browser.close()
