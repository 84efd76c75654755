//! How many workers KEDA and Kubernetes' horizontal pod autoscaler want: their documented formula,
//! with the numbers of `deploy/`. Pure: the clock and the depths are arguments.
//!
//! The autoscaler polls every 15 s, which is `pollingInterval` there; a trigger's metric is an
//! average value, KEDA's default.

use std::time::Duration;

/// A deviation up to this fraction of the target changes nothing.
const TOLERANCE: f64 = 0.1;

/// The settings in `scaler.yaml`.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) polling: Duration,
    /// Waiting events per worker.
    pub(super) target: u64,
    /// After more consecutive failures than this, this many workers are wanted.
    pub(super) fallback: (u32, usize),
    pub(super) up: Behavior,
    pub(super) down: Behavior,
    /// The URL that a trigger polls, and the field of the answer that it reads.
    pub(super) url: String,
    pub(super) value_location: String,
}

#[derive(Clone, Debug)]
pub(super) struct Behavior {
    pub(super) window: Duration,
    pub(super) policies: Vec<(Change, Duration)>,
}

/// How much a policy allows within its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Percent(usize),
    Pods(usize),
}

impl Settings {
    /// Parses the manifest line by line.
    pub(super) fn of(manifest: &str) -> Self {
        let lines: Vec<&str> = manifest.lines().map(|line| line.trim().trim_start_matches("- ")).collect();
        let scaled = lines.iter().position(|line| *line == "kind: ScaledObject").expect("one kind is scaled");
        let lines = &lines[scaled..];
        let at =
            |part: &str| lines.iter().position(|line| *line == part).unwrap_or_else(|| panic!("no {part}"));
        let (up, down, triggers) = (at("scaleUp:"), at("scaleDown:"), at("triggers:"));
        assert!(at("fallback:") < up && up < down && down < triggers, "the manifest has another order");
        let seconds = |key| Duration::from_secs(number(lines, key));
        let count = |key| usize::try_from(number(lines, key)).unwrap();
        let failures = u32::try_from(number(lines, "failureThreshold")).unwrap();
        let trigger = &lines[triggers..];
        assert_eq!(values(trigger, "type"), ["metrics-api"], "one trigger");
        Self {
            min: count("minReplicaCount"),
            max: count("maxReplicaCount"),
            polling: seconds("pollingInterval"),
            target: number(trigger, "targetValue"),
            fallback: (failures, count("replicas")),
            up: Behavior::of(&lines[up..down]),
            down: Behavior::of(&lines[down..triggers]),
            url: values(trigger, "url")[0].to_owned(),
            value_location: values(trigger, "valueLocation")[0].to_owned(),
        }
    }
}

impl Behavior {
    fn of(lines: &[&str]) -> Self {
        let window = Duration::from_secs(number(lines, "stabilizationWindowSeconds"));
        let parsed = |key| values(lines, key).into_iter().map(|value| value.parse::<u64>().unwrap());
        let changes = values(lines, "type").into_iter().zip(parsed("value")).map(|(kind, value)| {
            let value = usize::try_from(value).unwrap();
            match kind {
                "Percent" => Change::Percent(value),
                "Pods" => Change::Pods(value),
                other => panic!("no policy is of the type {other}"),
            }
        });
        let policies: Vec<_> = changes.zip(parsed("periodSeconds").map(Duration::from_secs)).collect();
        assert!(!policies.is_empty());
        Self { window, policies }
    }
}

/// The values of a key, without quotes.
fn values<'a>(lines: &[&'a str], key: &str) -> Vec<&'a str> {
    let of_key = lines.iter().filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    of_key.map(|value| value.trim_matches('"')).collect()
}

fn number(lines: &[&str], key: &str) -> u64 {
    let found = values(lines, key);
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    found[0].parse().unwrap_or_else(|_| panic!("{key} is no number: {}", found[0]))
}

/// A scaler and its memory.
pub(super) struct Scaler {
    settings: Settings,
    /// The number of workers wanted at each moment, before windows and policies.
    wanted: Vec<(Duration, usize)>,
    /// By how much the number of workers rose or fell, and when.
    rises: Vec<(Duration, usize)>,
    falls: Vec<(Duration, usize)>,
    /// Consecutive failures of each trigger.
    failures: Vec<u32>,
}

impl Scaler {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, wanted: Vec::new(), rises: Vec::new(), falls: Vec::new(), failures: Vec::new() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of workers from now on, given the triggers' values (`None` if the API did not
    /// answer) and the current number.
    pub(super) fn step(&mut self, now: Duration, depths: &[Option<u64>], replicas: usize) -> usize {
        let Some(wanted) = self.wanted_of(depths, replicas) else { return replicas };
        let stable = self.stabilized(now, wanted, replicas);
        let next = self.limited(now, stable, replicas);
        if next > replicas {
            self.rises.push((now, next - replicas));
        } else if next < replicas {
            self.falls.push((now, replicas - next));
        }
        next
    }

    /// The most that any trigger wants; while one has no value, no fewer than there are.
    fn wanted_of(&mut self, depths: &[Option<u64>], replicas: usize) -> Option<usize> {
        self.failures.resize(depths.len(), 0);
        let proposals: Vec<_> = depths
            .iter()
            .zip(&mut self.failures)
            .map(|(depth, failures)| {
                *failures = if depth.is_some() { 0 } else { *failures + 1 };
                let (after, instead) = self.settings.fallback;
                let value =
                    depth.or_else(|| (*failures > after).then(|| instead as u64 * self.settings.target));
                value.map(|value| proposal(value, self.settings.target, replicas))
            })
            .collect();
        let most = proposals.iter().flatten().max().copied()?;
        let knows_all = proposals.iter().all(Option::is_some);
        (knows_all || most >= replicas).then_some(most)
    }

    /// Applies the windows: no more than was wanted throughout, no fewer than was wanted at any
    /// time.
    fn stabilized(&mut self, now: Duration, wanted: usize, replicas: usize) -> usize {
        let Settings { up, down, .. } = &self.settings;
        let within = |window: Duration| {
            let recent = self.wanted.iter().filter(move |(at, _)| *at + window > now);
            recent.map(|(_, wanted)| *wanted)
        };
        let at_most = within(down.window).fold(wanted, usize::max);
        let at_least = within(up.window).fold(wanted, usize::min);
        self.wanted.push((now, wanted));
        replicas.max(at_least).min(at_most)
    }

    /// Applies the policies, of which the most permissive counts, and minimum and maximum.
    fn limited(&self, now: Duration, wanted: usize, replicas: usize) -> usize {
        let Settings { min, max, up, down, .. } = &self.settings;
        // The number when a period began.
        let before = |period: Duration| {
            let within = |changes: &[(Duration, usize)]| -> usize {
                changes.iter().filter(|(at, _)| *at + period > now).map(|(_, change)| change).sum()
            };
            replicas + within(&self.falls) - within(&self.rises)
        };
        if wanted > replicas {
            let allowed = up.policies.iter().map(|(change, period)| match change {
                Change::Percent(percent) => (before(*period) * (100 + percent)).div_ceil(100),
                Change::Pods(pods) => before(*period) + pods,
            });
            wanted.min(allowed.max().unwrap_or(0).max(replicas)).min(*max)
        } else {
            let allowed = down.policies.iter().map(|(change, period)| match change {
                Change::Percent(percent) => before(*period) * 100usize.saturating_sub(*percent) / 100,
                Change::Pods(pods) => before(*period).saturating_sub(*pods),
            });
            wanted.max(allowed.min().unwrap_or(replicas).min(replicas)).max(*min)
        }
    }
}

/// How many workers a value is enough for.
fn proposal(value: u64, target: u64, replicas: usize) -> usize {
    let usage = value as f64 / (target as f64 * replicas as f64);
    if (usage - 1.0).abs() <= TOLERANCE { replicas } else { usize::try_from(value.div_ceil(target)).unwrap() }
}

#[cfg(test)]
mod tests {
    use super::super::settings;
    use super::*;

    /// The workers after each step; `depths` is given the step's number and the current workers.
    fn run<F>(steps: usize, mut depths: F) -> Vec<usize>
    where
        F: FnMut(usize, usize) -> Vec<Option<u64>>,
    {
        let mut scaler = Scaler::new(settings());
        let mut replicas = settings().min;
        let mut all = Vec::new();
        for step in 0..steps {
            let now = settings().polling * u32::try_from(step).unwrap();
            replicas = scaler.step(now, &depths(step, replicas), replicas);
            all.push(replicas);
        }
        all
    }

    /// In each step, which is how long a handler runs, a worker takes a target's worth of the
    /// waiting events.
    fn worked(waiting: &mut u64, arrive: u64, replicas: usize) -> u64 {
        *waiting += arrive;
        *waiting -= (*waiting).min(settings().target * replicas as u64);
        *waiting
    }

    #[test]
    fn the_manifest_is_read() {
        let Settings { min, max, polling, target, fallback, up, down, .. } = settings();
        assert_eq!((min, max, polling.as_secs(), target, fallback), (2, 20, 15, 64, (4, 4)));
        let seconds = Duration::from_secs;
        assert_eq!((up.window, up.policies), (seconds(0), vec![(Change::Percent(100), seconds(30))]));
        assert_eq!((down.window, down.policies), (seconds(300), vec![(Change::Pods(1), seconds(60))]));
    }

    /// The workers double every 30 s, up to the maximum; they go one a minute, starting five
    /// minutes after they were last wanted.
    #[test]
    fn a_burst_raises_them_once_and_they_go_once() {
        let mut waiting = 10_000;
        let all = run(120, |_, replicas| vec![Some(worked(&mut waiting, 0, replicas))]);
        assert_eq!(all[..8], [4, 4, 8, 8, 16, 16, 20, 20]);
        let last_wanted = all.len() - all.iter().rev().position(|replicas| *replicas == 20).unwrap();
        assert!(all[..last_wanted].is_sorted() && all[last_wanted..].is_sorted_by(|one, next| one >= next));
        let fall: Vec<usize> = all[last_wanted..].iter().step_by(4).copied().collect();
        assert_eq!(fall[..18], [19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(all.last(), Some(&settings().min));
    }

    #[test]
    fn low_load_and_values_near_the_target_do_not_scale() {
        assert_eq!(run(40, |step, _| vec![Some(step as u64 % 64)]), [2; 40]);
        assert_eq!(run(40, |_, _| vec![Some(140)]), [2; 40], "within a tenth of 2 x 64");
        assert_eq!(run(1, |_, _| vec![Some(141)]), [3]);
    }

    /// Each of two canvases has enough work for up to six workers, and together they get six.
    #[test]
    fn of_two_triggers_the_larger_counts_and_not_their_sum() {
        let all = run(10, |_, _| vec![Some(6 * 64), Some(5 * 64)]);
        assert_eq!(all.last(), Some(&6));
        assert_eq!(
            run(10, |_, _| vec![Some(32); 100]),
            [2; 10],
            "a hundred canvases with half a worker's work each"
        );
    }

    #[test]
    fn during_an_api_outage_no_worker_stops_and_then_the_fallback_applies() {
        let away = |from: usize, depth: u64| {
            move |step: usize, _: usize| vec![if step < from { Some(depth) } else { None }]
        };
        // The threshold is four failures: the fifth is beyond it.
        assert_eq!(run(6, away(0, 0)), [2, 2, 2, 2, 4, 4]);
        let all = run(120, away(6, 16 * 64));
        assert_eq!(all[5], 16);
        assert!(all[5..].iter().take_while(|replicas| **replicas == 16).count() >= 20, "{all:?}");
        assert_eq!(all.last(), Some(&4), "{all:?}");
        // While one of two triggers fails, the other may ask for more workers, but not for fewer.
        let all = run(12, |step, _| vec![Some(if step < 6 { 8 * 64 } else { 0 }), (step < 6).then_some(0)]);
        assert_eq!(all[6..], [8; 6]);
    }

    /// Under steady load the number of workers stays at what is needed, give or take a few, and no
    /// more events wait than they take in a step.
    #[test]
    fn steady_load_makes_no_flapping() {
        for needed in [3, 5, 10, 15] {
            let (mut waiting, arrive) = (0, needed as u64 * settings().target);
            let mut most = 0;
            let all = run(960, |step, replicas| {
                let depth = worked(&mut waiting, arrive, replicas);
                most = if step < 200 { 0 } else { most.max(depth) };
                vec![Some(depth)]
            });
            let settled = &all[200..];
            assert!(settled.iter().all(|replicas| replicas.abs_diff(needed) <= 2), "{needed}: {settled:?}");
            let changes = settled.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(
                changes <= settled.len() / 8,
                "{needed}: {changes} changes within {} steps",
                settled.len()
            );
            assert!(most <= arrive + arrive / 10, "{needed}: {most} waited");
        }
    }
}
