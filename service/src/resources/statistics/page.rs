//! What happened to events in the last hour, day or fortnight, as pages show it: the choice of the
//! time, charts, and the numbers behind them.

mod spread;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use crate::http::problem::Problem;
use crate::page::chart::{Series, columns};
use crate::page::parts::{number, table};
use crate::page::time::{length, now, on_the_clock};
use crate::page::visit::Visit;
use crate::resources::statistics::wire::{StatisticsJson, TimesJson};

/// A length of time up to now.
pub(crate) struct Span {
    /// Its name in the address of a page.
    name: &'static str,
    words: &'static str,
    length_s: i64,
    step_s: i64,
    /// A single step that holds all of it. Whole hours would begin at an hour, and so hold more.
    whole_s: i64,
}

static SPANS: [Span; 3] = [
    Span { name: "1h", words: "1 hour", length_s: 3_600, step_s: 60, whole_s: 3_660 },
    Span { name: "24h", words: "24 hours", length_s: 86_400, step_s: 900, whole_s: 86_460 },
    Span { name: "14d", words: "14 days", length_s: 1_209_600, step_s: 21_600, whole_s: 1_209_600 },
];

impl Span {
    /// The one that a page's address asks for: the last hour if it asks for none.
    pub(crate) fn of(visit: &Visit) -> &'static Self {
        let asked = visit.parameter("over");
        SPANS.iter().find(|span| span.name == asked).unwrap_or(&SPANS[0])
    }

    /// The last hour.
    pub(crate) fn hour() -> &'static Self {
        &SPANS[0]
    }

    /// The links to all of them, of which this one is marked.
    pub(crate) fn choice(&self) -> Markup {
        html! {
            p.actions {
                "The last "
                @for span in &SPANS {
                    a.button href=(format!("?over={}", span.name))
                        aria-current=[(span.name == self.name).then_some("true")] { (span.words) }
                }
            }
        }
    }

    /// The same length of time a day ago, in words, with its beginning and end. Of what is more
    /// than a day ago whole hours are known.
    fn day_before(&self, now: DateTime<Utc>) -> Option<(&'static str, DateTime<Utc>, DateTime<Utc>)> {
        let now_s = now.timestamp();
        let hour = DateTime::from_timestamp(now_s - now_s.rem_euclid(3_600), 0)?;
        match self.name {
            "1h" => {
                let from = hour - TimeDelta::days(1);
                Some(("in this hour yesterday", from, from + TimeDelta::hours(1)))
            }
            "24h" => {
                let to = hour + TimeDelta::hours(1) - TimeDelta::days(1);
                Some(("in the day before", to - TimeDelta::days(1), to))
            }
            _ => None,
        }
    }

    /// Its beginning and end at whole steps, so that all browsers ask the same.
    fn range(&self, now: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
        let now_s = now.timestamp();
        let end = DateTime::from_timestamp(now_s - now_s.rem_euclid(self.step_s) + self.step_s, 0);
        let end = end.unwrap_or(now);
        (end - TimeDelta::seconds(self.length_s), end)
    }
}

/// What happened in a span: step by step, and altogether.
pub(crate) struct History {
    span: &'static Span,
    steps: StatisticsJson,
    whole: StatisticsJson,
    /// A day before, in a single step, and when that was in words.
    before: Option<(&'static str, StatisticsJson)>,
}

impl History {
    /// Of what is at a path below the canvas: a handler, or with an empty path the canvas itself.
    pub(crate) async fn read(visit: &Visit, of: &[&str], span: &'static Span) -> Result<Self, Problem> {
        let path: Vec<&str> = of.iter().copied().chain(["statistics"]).collect();
        let (from, to) = span.range(now());
        let ask = |step_s: i64| {
            let ask = visit.ask(&path).query("from", from.to_rfc3339()).query("to", to.to_rfc3339());
            ask.query("step_s", step_s).shared::<StatisticsJson>()
        };
        let (steps, whole) = tokio::join!(ask(span.step_s), ask(span.whole_s));
        Ok(Self { span, steps: steps?, whole: whole?, before: None })
    }

    /// The same, with what it was a day before.
    pub(crate) async fn compared(visit: &Visit, of: &[&str], span: &'static Span) -> Result<Self, Problem> {
        let (history, before) = tokio::join!(Self::read(visit, of, span), day_before(visit, of, span));
        Ok(Self { before: before?, ..history? })
    }

    /// How many events died in it.
    pub(crate) fn died(&self) -> u64 {
        self.steps.dead.iter().sum()
    }

    /// How many more events were emitted in it than ended.
    pub(crate) fn grown(&self) -> i128 {
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        sum(&self.steps.emitted) - sum(&self.steps.completed) - sum(&self.steps.dead)
    }

    /// The charts, and a table of how long everything took.
    pub(crate) fn show(&self) -> Markup {
        html! {
            h2 { "The last " (self.span.words) }
            div.charts { (self.ended()) (self.emitted()) (self.waited()) (self.ran()) }
            (self.times())
        }
    }

    /// How the times of single attempts are spread.
    pub(crate) fn spread(&self) -> Markup {
        spread::spread(&self.whole.bins)
    }

    fn ended(&self) -> Markup {
        let StatisticsJson { completed, failed, dead, .. } = &self.steps;
        let series = [
            Series { label: "completed", class: "done", values: counts(completed) },
            Series { label: "attempts that failed", class: "failed", values: counts(failed) },
            Series { label: "died", class: "dead", values: counts(dead) },
        ];
        let words = format!(
            "{} completed, {} attempts failed, {} died",
            total(completed),
            total(failed),
            total(dead)
        );
        html! { div { (columns("Ended", &words, &series, most, &self.ends())) p.quiet { (words) } } }
    }

    fn emitted(&self) -> Markup {
        let emitted = &self.steps.emitted;
        let series = [Series { label: "emitted", class: "emitted", values: counts(emitted) }];
        let words = format!("{} emitted", total(emitted));
        html! { div { (columns("Emitted", &words, &series, most, &self.ends())) p.quiet { (words) } } }
    }

    fn waited(&self) -> Markup {
        let words = in_words("events had been due for", &self.whole.wait);
        columns("Waiting time", &words, &percentiles(&self.steps.wait), longest, &self.ends())
    }

    fn ran(&self) -> Markup {
        let words = in_words("attempts took", &self.whole.run);
        columns("Running time", &words, &percentiles(&self.steps.run), longest, &self.ends())
    }

    /// When the first step begins and the last one ends.
    fn ends(&self) -> [Markup; 2] {
        let (first, last) = (self.steps.at.first(), self.steps.at.last());
        let end = last.and_then(|last| last.checked_add_signed(TimeDelta::seconds(self.span.step_s)));
        [first.copied(), end].map(|at| at.map_or_else(|| html! {}, on_the_clock))
    }

    fn times(&self) -> Markup {
        let mut rows =
            vec![("Waited until it ran".to_owned(), &self.whole.wait), ("Ran".to_owned(), &self.whole.run)];
        if let Some((when, before)) = &self.before {
            rows.insert(1, (format!("Waited {when}"), &before.wait));
            rows.push((format!("Ran {when}"), &before.run));
        }
        let cell = |column: &[Option<f64>]| first(column).map_or("–".to_owned(), length);
        let head = ["How long", ">Attempts", ">Mean", ">Median", ">95 %", ">99 %"];
        html! {
            (table("How long it took", &head, html! {
                @for (what, times) in &rows {
                    tr {
                        td { (what) }
                        td.number { (total(&times.count)) }
                        td.number { (cell(&times.mean_s)) }
                        td.number { (cell(&times.p50_s)) }
                        td.number { (cell(&times.p95_s)) }
                        td.number { (cell(&times.p99_s)) }
                    }
                }
            }))
        }
    }
}

async fn day_before(
    visit: &Visit,
    of: &[&str],
    span: &'static Span,
) -> Result<Option<(&'static str, StatisticsJson)>, Problem> {
    let Some((when, from, to)) = span.day_before(now()) else { return Ok(None) };
    let path: Vec<&str> = of.iter().copied().chain(["statistics"]).collect();
    let ask = visit.ask(&path).query("from", from.to_rfc3339()).query("to", to.to_rfc3339());
    let before = ask.query("step_s", (to - from).num_seconds()).shared::<StatisticsJson>().await?;
    Ok(Some((when, before)))
}

fn counts(counts: &[u64]) -> Vec<f64> {
    counts.iter().map(|count| *count as f64).collect()
}

fn total(counts: &[u64]) -> String {
    number(counts.iter().sum::<u64>())
}

/// The largest column, as it is written at a chart of counts.
fn most(most: f64) -> String {
    format!("up to {} a step", number(most as u64))
}

/// The same at a chart of durations.
fn longest(longest: f64) -> String {
    format!("up to {}", length(longest))
}

/// The percentiles on top of each other: each series is what its percentile is above the one below,
/// so that its top stands where its percentile is.
fn percentiles(times: &TimesJson) -> [Series<'static>; 3] {
    let of = |column: &[Option<f64>]| -> Vec<f64> {
        column.iter().map(|seconds| seconds.unwrap_or(0.0)).collect()
    };
    let above = |upper: &[f64], lower: &[f64]| -> Vec<f64> {
        upper.iter().zip(lower).map(|(upper, lower)| (upper - lower).max(0.0)).collect()
    };
    let (p50, p95, p99) = (of(&times.p50_s), of(&times.p95_s), of(&times.p99_s));
    let (to_p95, to_p99) = (above(&p95, &p50), above(&p99, &p95));
    [
        Series { label: "half of them took at most this long", class: "p50", values: p50 },
        Series { label: "95 of 100", class: "p95", values: to_p95 },
        Series { label: "99 of 100", class: "p99", values: to_p99 },
    ]
}

/// For those who can't see the chart.
fn in_words(what: &str, whole: &TimesJson) -> String {
    let found = [first(&whole.p50_s), first(&whole.p95_s), first(&whole.p99_s)];
    match found.map(|seconds| seconds.map(length)) {
        [Some(half), Some(most), Some(nearly_all)] => {
            format!("half of the {what} at most {half}, 95 % at most {most}, 99 % at most {nearly_all}")
        }
        _ => "nothing happened".to_owned(),
    }
}

/// What a single step says.
fn first(column: &[Option<f64>]) -> Option<f64> {
    column.first().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_with_the_step_that_is_now() {
        let now: DateTime<Utc> = "2030-05-20T12:34:56.789Z".parse().unwrap();
        for (span, expected) in SPANS.iter().zip([
            ("2030-05-20T11:35:00Z", "2030-05-20T12:35:00Z"),
            ("2030-05-19T12:45:00Z", "2030-05-20T12:45:00Z"),
            ("2030-05-06T18:00:00Z", "2030-05-20T18:00:00Z"),
        ]) {
            let (from, to) = span.range(now);
            assert_eq!(
                (from, to),
                (expected.0.parse().unwrap(), expected.1.parse().unwrap()),
                "{}",
                span.name
            );
            assert!(span.whole_s >= span.length_s, "a single step holds all of it");
        }
    }

    #[test]
    fn a_day_before_is_whole_hours() {
        let now: DateTime<Utc> = "2030-05-20T12:34:56.789Z".parse().unwrap();
        let found = SPANS.each_ref().map(|span| span.day_before(now).map(|(_, from, to)| (from, to)));
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert_eq!(
            found,
            [
                Some((at("2030-05-19T12:00:00Z"), at("2030-05-19T13:00:00Z"))),
                Some((at("2030-05-18T13:00:00Z"), at("2030-05-19T13:00:00Z"))),
                None,
            ]
        );
    }

    /// Of the last fortnight: its last step has six hours.
    #[test]
    fn charts_say_when_they_begin_and_end() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let at = vec![at("2030-05-06T18:00:00Z"), at("2030-05-20T12:00:00Z")];
        let steps = StatisticsJson { at, ..StatisticsJson::default() };
        let history = History { span: &SPANS[2], steps, whole: StatisticsJson::default(), before: None };
        let chart = history.emitted().into_string();
        for end in ["2030-05-06 18:00:00 UTC", "2030-05-20 18:00:00 UTC"] {
            assert!(chart.contains(&format!("data-exact>{end}</time></span>")), "{end}: {chart}");
        }
        let none = History { steps: StatisticsJson::default(), ..history };
        assert!(none.ran().into_string().contains("<p class=\"axis\"><span></span><span></span></p>"));
    }

    #[test]
    fn percentiles_stand_where_they_are() {
        let times = TimesJson {
            count: vec![4, 0],
            mean_s: vec![Some(1.0), None],
            p50_s: vec![Some(1.0), None],
            p95_s: vec![Some(3.0), None],
            p99_s: vec![Some(3.5), None],
        };
        let values = percentiles(&times).map(|series| series.values);
        assert_eq!(values, [vec![1.0, 0.0], vec![2.0, 0.0], vec![0.5, 0.0]]);
        let words = in_words("attempts took", &times);
        assert_eq!(words, "half of the attempts took at most 1.0 s, 95 % at most 3.0 s, 99 % at most 3.5 s");
        assert_eq!(in_words("attempts took", &TimesJson::default()), "nothing happened");
    }
}
