//! A cron expression in words, for people who do not read cron.
//!
//! The words say exactly when the ticks are, or there are none: what takes many words is better
//! read as it is. They go by the values of the fields, so that two spellings of a schedule have the
//! same words.

use croner::CronPattern;

use super::schedule::{EXPRESSION_BYTES_MAX, parsed};

/// How many times of the day are listed although a span has them, and how many at the most.
const TIMES: usize = 4;
const TIMES_MAX: usize = 8;
/// How many numbers are listed, and how many days of one month.
const NUMBERS_MAX: usize = 8;
const DATES_MAX: usize = 4;

/// From Monday on.
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The times at which a day has ticks.
enum Times {
    /// These, such as `at 08:00`.
    At(String),
    /// All day long, such as `every hour`.
    Always(String),
    /// For a part of the day, such as `every hour from 09:00 to 17:00`.
    Span(String),
}

/// The days that have ticks.
struct Dates {
    /// Such as `on Mondays`; `None` for all.
    days: Option<String>,
    /// Such as ` in January`; empty for all.
    months: String,
}

/// The days of a month or of a week.
enum Days {
    Every,
    On(String),
}

/// When an expression ticks, such as `every day at 08:00`, without its zone. `None` if the
/// expression itself says it better, or is not valid.
pub fn in_words(expression: &str) -> Option<String> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return None;
    }
    let pattern = parsed(expression).ok()?.pattern;
    let (times, Dates { days, months }) = (times(&pattern)?, dates(&pattern)?);
    let on = days.as_deref().unwrap_or("every day");
    Some(match (times, &days) {
        (Times::At(at), _) => format!("{on}{months} {at}"),
        (Times::Span(span), _) => format!("{span}, {on}{months}"),
        (Times::Always(always), Some(on)) => format!("{always} {on}{months}"),
        (Times::Always(always), None) => format!("{always}{months}"),
    })
}

fn times(pattern: &CronPattern) -> Option<Times> {
    let (seconds, minutes, hours) =
        (pattern.seconds.values(), pattern.minutes.values(), pattern.hours.values());
    match seconds.as_slice() {
        [second] if hours.len() == 24 => of_every_hour(*second, &minutes),
        [second] => of_some_hours(*second, &minutes, &hours),
        seconds => of_seconds(seconds, &minutes, &hours),
    }
}

/// Several seconds of a minute.
fn of_seconds(seconds: &[u16], minutes: &[u16], hours: &[u16]) -> Option<Times> {
    let step = even(seconds, 60).filter(|_| seconds.first() == Some(&0));
    let every_minute = minutes.len() == 60;
    match step {
        Some(step) if every_minute && hours.len() == 24 => Some(Times::Always(every("second", step))),
        None if every_minute && hours.len() == 24 => {
            Some(Times::Always(format!("every minute at {}", numbered("second", seconds)?)))
        }
        Some(step) if is_run(hours) && (every_minute || (hours.len() == 1 && is_run(minutes))) => {
            let from = clock(*hours.first()?, *minutes.first()?, seconds.first().copied());
            let to = clock(*hours.last()?, *minutes.last()?, seconds.last().copied());
            Some(Times::Span(format!("{} from {from} to {to}", every("second", step))))
        }
        Some(_) | None => None,
    }
}

fn of_every_hour(second: u16, minutes: &[u16]) -> Option<Times> {
    let words = match (second, minutes) {
        (0, minutes) if minutes.len() == 60 => "every minute".to_owned(),
        (second, minutes) if minutes.len() == 60 => format!("every minute at second {second}"),
        (0, [0]) => "every hour".to_owned(),
        (0, minutes) => match even(minutes, 60).filter(|_| minutes.first() == Some(&0)) {
            Some(step) => every("minute", step),
            None => format!("every hour at {}", numbered("minute", minutes)?),
        },
        _ => return None,
    };
    Some(Times::Always(words))
}

fn of_some_hours(second: u16, minutes: &[u16], hours: &[u16]) -> Option<Times> {
    let count = minutes.len() * hours.len();
    let listed = || {
        let shown = (second > 0).then_some(second);
        let times =
            hours.iter().flat_map(|hour| minutes.iter().map(move |minute| clock(*hour, *minute, shown)));
        Times::At(format!("at {}", list(&times.collect::<Vec<_>>())))
    };
    if (1..=TIMES).contains(&count) {
        return Some(listed());
    }
    if second != 0 {
        return None;
    }
    if let Some(every) = spread(minutes, hours) {
        let from = clock(*hours.first()?, *minutes.first()?, None);
        let to = clock(*hours.last()?, *minutes.last()?, None);
        return Some(Times::Span(format!("{every} from {from} to {to}")));
    }
    if (1..=TIMES_MAX).contains(&count) {
        return Some(listed());
    }
    let minutes = numbered("minute", minutes)?;
    match hours {
        [hour] => Some(Times::At(format!("at {minutes} of hour {hour:02}"))),
        [first, .., last] if is_run(hours) => {
            Some(Times::At(format!("at {minutes} of the hours from {first:02} to {last:02}")))
        }
        _ => None,
    }
}

/// How far the times are from each other, if they are all equally far.
fn spread(minutes: &[u16], hours: &[u16]) -> Option<String> {
    match (minutes, step(hours)) {
        ([_], Some(step)) => Some(every("hour", step)),
        (minutes, _) if is_run(hours) => Some(every("minute", even(minutes, 60)?)),
        _ => None,
    }
}

fn dates(pattern: &CronPattern) -> Option<Dates> {
    let (days, months) = (pattern.days.values(), pattern.months.values());
    let by_month = !pattern.is_dom_wildcard() && pattern.is_dow_wildcard();
    if let [month] = months.as_slice()
        && by_month
        && !pattern.days.has_modifiers()
        && (1..=DATES_MAX).contains(&days.len())
    {
        let days = format!("on {} {}", list(&texts(&days)), named_month(*month)?);
        return Some(Dates { days: Some(days), months: String::new() });
    }
    let days = match (pattern.is_dom_wildcard(), pattern.is_dow_wildcard()) {
        (true, true) => Days::Every,
        (false, true) => of_month(pattern)?,
        (true, false) => of_week(pattern)?,
        (false, false) => of_both(pattern)?,
    };
    let days = match days {
        Days::Every => None,
        Days::On(days) => Some(days),
    };
    Some(Dates { days, months: of_year(&months)? })
}

/// Days of a month and of a week: either is enough, unless the expression asks for both.
fn of_both(pattern: &CronPattern) -> Option<Days> {
    match (of_month(pattern)?, of_week(pattern)?, pattern.matches_dom_and_dow()) {
        (Days::Every, days, true) | (days, Days::Every, true) => Some(days),
        (Days::Every, _, false) | (_, Days::Every, false) => Some(Days::Every),
        (Days::On(month), Days::On(week), false) => Some(Days::On(format!("{month} and also {week}"))),
        (Days::On(_), Days::On(_), true) if pattern.days_of_week.has_modifiers() => None,
        (Days::On(month), Days::On(_), true) => {
            let days: Vec<_> = of_monday(pattern)
                .into_iter()
                .filter_map(named_weekday)
                .map(|day| format!("a {day}"))
                .collect();
            Some(Days::On(format!("{month} if it is {}", days.join(" or "))))
        }
    }
}

fn of_month(pattern: &CronPattern) -> Option<Days> {
    if pattern.days.has_modifiers() {
        let parts: Vec<_> = pattern.as_str().split_whitespace().rev().nth(2)?.split(',').collect();
        let days = parts.iter().map(|part| day(part, parts.len() == 1)).collect::<Option<Vec<_>>>()?;
        return Some(Days::On(format!("on {} of the month", list(&days))));
    }
    let days = pattern.days.values();
    match days.len() {
        0 => None,
        31 => Some(Days::Every),
        _ => Some(Days::On(format!("on {} of the month", numbered("day", &days)?))),
    }
}

/// A part of the field of days in an expression that has forms of its own.
fn day(part: &str, is_alone: bool) -> Option<String> {
    match part.strip_suffix('W') {
        // Beside others, it is not what it says.
        Some("L") => is_alone.then(|| "the last weekday (Monday to Friday)".to_owned()),
        Some(day) => {
            Some(format!("the weekday (Monday to Friday) nearest to day {}", day.parse::<u16>().ok()?))
        }
        None if part == "L" => Some("the last day".to_owned()),
        None => Some(format!("day {}", part.parse::<u16>().ok()?)),
    }
}

fn of_week(pattern: &CronPattern) -> Option<Days> {
    if pattern.days_of_week.has_modifiers() {
        let field = pattern.as_str().split_whitespace().next_back()?;
        let parts = field.strip_prefix('+').unwrap_or(field).split(',');
        let days = parts.map(nth_weekday).collect::<Option<Vec<_>>>()?;
        return Some(Days::On(format!("on {} of the month", list(&days))));
    }
    let days = of_monday(pattern);
    let names: Vec<_> = days.iter().copied().filter_map(named_weekday).collect();
    match names.as_slice() {
        [] => None,
        [_, _, _, _, _, _, _] => Some(Days::Every),
        [first, _, .., last] if is_run(&days) => Some(Days::On(format!("from {first} to {last}"))),
        names => {
            let names: Vec<_> = names.iter().map(|name| format!("{name}s")).collect();
            Some(Days::On(format!("on {}", list(&names))))
        }
    }
}

/// A part of the field of weekdays in an expression that has forms of its own.
fn nth_weekday(part: &str) -> Option<String> {
    let (day, which) = part.split_once('#').or_else(|| Some((part.strip_suffix('L')?, "L")))?;
    let which = match which {
        "1" => "first",
        "2" => "second",
        "3" => "third",
        "4" => "fourth",
        "5" => "fifth",
        "L" => "last",
        _ => return None,
    };
    let day = day.parse::<u16>().ok().filter(|day| *day <= 7)?;
    Some(format!("the {which} {}", named_weekday((day + 6) % 7)?))
}

/// The weekdays in their order from Monday, which is 0.
fn of_monday(pattern: &CronPattern) -> Vec<u16> {
    let mut days: Vec<_> = pattern.days_of_week.values().into_iter().map(|day| (day + 6) % 7).collect();
    days.sort_unstable();
    days
}

fn named_weekday(from_monday: u16) -> Option<&'static str> {
    WEEKDAYS.get(usize::from(from_monday)).copied()
}

fn of_year(months: &[u16]) -> Option<String> {
    let names = months.iter().map(|month| named_month(*month)).collect::<Option<Vec<_>>>()?;
    match names.as_slice() {
        [] => None,
        names if names.len() == 12 => Some(String::new()),
        [first, _, .., last] if is_run(months) => Some(format!(" from {first} to {last}")),
        names => {
            Some(format!(" in {}", list(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())))
        }
    }
}

fn named_month(month: u16) -> Option<&'static str> {
    MONTHS.get(usize::from(month).checked_sub(1)?).copied()
}

/// The distance of the values, if it is always the same.
fn step(values: &[u16]) -> Option<u16> {
    let step = values.get(1)? - values.first()?;
    values.windows(2).all(|pair| pair[1] - pair[0] == step).then_some(step)
}

/// The distance of the values, if it is also that from the last to the first one of the next round.
fn even(values: &[u16], round: u16) -> Option<u16> {
    let count = u16::try_from(values.len()).ok()?;
    step(values).filter(|step| *step * count == round)
}

fn is_run(values: &[u16]) -> bool {
    values.len() == 1 || step(values) == Some(1)
}

fn every(unit: &str, step: u16) -> String {
    if step == 1 { format!("every {unit}") } else { format!("every {step} {unit}s") }
}

fn clock(hour: u16, minute: u16, second: Option<u16>) -> String {
    match second {
        Some(second) => format!("{hour:02}:{minute:02}:{second:02}"),
        None => format!("{hour:02}:{minute:02}"),
    }
}

/// Numbers after what they count, such as `minutes 0 and 30`.
fn numbered(noun: &str, values: &[u16]) -> Option<String> {
    let numbers = match (values, step(values)) {
        ([], _) => return None,
        ([first, _, .., last], Some(1)) => format!("{first} to {last}"),
        (values, _) if values.len() <= NUMBERS_MAX => list(&texts(values)),
        ([first, second, third, .., last], Some(_)) => {
            format!("{first}, {second}, {third} and so on to {last}")
        }
        _ => return None,
    };
    Some(if values.len() == 1 { format!("{noun} {numbers}") } else { format!("{noun}s {numbers}") })
}

fn texts(values: &[u16]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}
