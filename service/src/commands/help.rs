//! The command line as it is parsed: what `--help` shows of each command, which values may begin
//! with a hyphen, and variables that are empty or not valid.
//!
//! `--help` is one screen with the command's own options, also in a terminal of 80 columns.
//! `--help-all` adds those that every command has, and rarer ones, and says more about some.

use std::any::TypeId;
use std::time::Duration;

use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};

/// Below the options of each command.
const FOOTER: &str = "\
More options, among them --canvas and --server of every command: --help-all";

/// The command line of a program.
pub(super) fn command(command: Command) -> Command {
    command.mut_args(adapted).mut_subcommands(below)
}

fn below(command: Command) -> Command {
    command.mut_args(adapted).mut_subcommands(below).after_help(FOOTER)
}

fn adapted(arg: Arg) -> Arg {
    let arg = if is_general(&arg) { arg.hide_short_help(true) } else { arg };
    without_empty_variable(with_hyphens(arg))
}

/// Whether every command has it, and the text below the options stands for it.
fn is_general(arg: &Arg) -> bool {
    arg.is_global_set() && !matches!(arg.get_action(), ArgAction::HelpShort)
}

/// A value may be a negative number. An option of a duration takes whatever follows it, so that its
/// own rule judges `-5s`. Any other option would take the next one as its value where the variable
/// that should give it is empty, so that `--actor $WHO --dry-run` would be no dry run.
fn with_hyphens(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() {
        return arg;
    }
    let takes_all = !arg.is_positional() && needs_value(&arg) && is_duration(&arg);
    arg.allow_negative_numbers(true).allow_hyphen_values(takes_all)
}

fn needs_value(arg: &Arg) -> bool {
    arg.get_num_args().is_none_or(|count| count.min_values() > 0)
}

fn is_duration(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<Duration>()
}

/// An empty variable counts as unset: Compose and charts pass on variables that are not set as
/// empty texts.
fn without_empty_variable(arg: Arg) -> Arg {
    let is_empty =
        arg.get_env().is_some_and(|name| std::env::var_os(name).is_some_and(|value| value.is_empty()));
    if is_empty { arg.env(Resettable::Reset) } else { arg }
}

/// Says of a value that is not valid which variable it comes from: the message itself only names
/// the option.
pub(super) fn naming_variable(mut error: clap::Error, command: &Command) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    let (Some(arg), Some(value)) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue)) else {
        return error;
    };
    // Only in a built command do options know how many values they have, and how they are written.
    let mut built = command.clone();
    built.build();
    if let Some(name) = variable(&built, &arg, &value) {
        let tip = StyledStr::from(format!("this is the value of the environment variable {name}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// The variable that gives an option this value.
fn variable(command: &Command, arg: &str, value: &str) -> Option<String> {
    let own = command.get_arguments().find_map(|known| {
        let name = known.get_env()?.to_str()?;
        let gives = std::env::var(name).is_ok_and(|given| given == value);
        (known.to_string() == arg && gives).then(|| name.to_owned())
    });
    own.or_else(|| command.get_subcommands().find_map(|below| variable(below, arg, value)))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::commands::Cli;

    /// Maximum number of lines of a command's help: a screen.
    const LINES_MAX: usize = 45;
    /// Width of a narrow terminal.
    const COLUMNS: usize = 80;

    /// Calls `look` with each command below this one and its path.
    fn each(command: &Command, path: &str, look: &mut impl FnMut(&Command, &str)) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            look(below, &path);
            each(below, &path, look);
        }
    }

    /// Such an option would get the value of the general one, or its default.
    #[test]
    fn no_option_of_a_command_is_called_as_a_general_one() {
        let whole = Cli::command();
        let general: BTreeSet<_> =
            whole.get_arguments().filter(|arg| arg.is_global_set()).map(|arg| arg.get_id().clone()).collect();
        assert!(general.len() > 20, "{general:?}");
        let mut shadows = Vec::new();
        each(&whole, "wakeq", &mut |below, path| {
            let own = below.get_arguments().filter(|arg| general.contains(arg.get_id()));
            shadows.extend(own.map(|arg| format!("{path}: {}", arg.get_id())));
        });
        assert!(shadows.is_empty(), "{shadows:?}");
    }

    #[test]
    fn the_help_of_each_command_is_a_screen_of_its_own_options() {
        let mut whole = command(Cli::command());
        whole.build();
        let general: Vec<String> = whole
            .get_arguments()
            .filter(|arg| is_general(arg))
            .filter_map(|arg| Some(format!("--{} ", arg.get_long()?)))
            .collect();
        assert!(general.len() > 20, "{general:?}");
        let mut seen = 0;
        each(&whole, "wakeq", &mut |below, path| {
            let mut narrow = below.clone().term_width(COLUMNS);
            let help = narrow.render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= LINES_MAX, "`{path} --help` has {lines} lines:\n{help}");
            for option in &general {
                let is_shown = help.lines().any(|line| line.trim_start().starts_with(option.as_str()));
                assert!(!is_shown, "`{path} --help` shows {option}");
            }
            let all = narrow.render_long_help().to_string();
            assert!(general.iter().all(|option| all.contains(option.trim_end())), "`{path} --help-all`");
            seen += 1;
        });
        assert!(seen > 70, "{seen} commands");
    }

    /// Lists that say in another way what comes after them, or that there is more.
    const ENDS: [(&str, &str); 2] = [
        ("wakeq log read", "`--after` a number of the log"),
        ("wakeq handlers attempts", "its last ones, with a note if there may be more (ADR 0084)"),
    ];

    /// What a command leaves out of a list, another call of it shows.
    #[test]
    fn every_command_that_lists_can_go_on() {
        let whole = Cli::command();
        let (mut lists, mut complaints, mut ends) = (0, Vec::new(), BTreeSet::new());
        each(&whole, "wakeq", &mut |below, path| {
            let has = |name: &str| {
                below.get_arguments().any(|arg| arg.get_id() == name && arg.get_long() == Some(name))
            };
            match (has("limit"), has("cursor")) {
                (true, true) => lists += 1,
                (true, false) if ENDS.iter().any(|(known, _)| *known == path) => {
                    ends.insert(path.to_owned());
                }
                (false, false) if below.get_name() != "list" => {}
                _ => complaints.push(path.to_owned()),
            }
        });
        assert!(complaints.is_empty(), "without a limit or a cursor: {complaints:?}");
        assert!(lists >= 25 && ends.len() == ENDS.len(), "{lists} lists, {ends:?}");
    }

    #[test]
    fn values_may_be_negative() {
        for line in [
            "emit n -5",
            "emit n -1.5e3",
            "emit n 1 --on work:1 --state -5",
            "emit n 1 --on work:1 --state -1.5e3",
            "emit n 1 --after 5s",
            "emit n 1 --on=--json",
            "stats --watch --limit 5",
        ] {
            let words = ["wakeq"].into_iter().chain(line.split(' '));
            command(Cli::command()).try_get_matches_from(words).unwrap();
        }
        for (line, words) in [
            ("emit n 1 --after -5s", "'-5s' for '--after"),
            ("quotas set events -1", "'-1' for '<LIMIT>'"),
            ("emit n --aftr 5s", "'--aftr' found"),
        ] {
            let line = ["wakeq"].into_iter().chain(line.split(' '));
            let refused = command(Cli::command()).try_get_matches_from(line).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }

    /// The next option would be the value of one whose variable is empty and not quoted.
    #[test]
    fn no_option_takes_the_next_one_as_its_value() {
        let mut whole = command(Cli::command());
        whole.build();
        let mut lines = Vec::new();
        each(&whole, "wakeq", &mut |below, path| {
            let is_taking = |arg: &&Arg| arg.get_action().takes_values() && needs_value(arg);
            // One command is enough for the options that every command has.
            let options = below.get_arguments().filter(is_taking);
            let options = options.filter(|arg| !arg.is_global_set() || below.get_name() == "stats");
            for option in options.filter_map(Arg::get_long) {
                let others = ["--json", "--dry-run", "--help-all"];
                lines.extend(others.map(|other| format!("{path} --{option} {other}")));
            }
        });
        assert!(lines.len() > 300, "{} lines", lines.len());
        for line in lines {
            let Err(error) = whole.try_get_matches_from_mut(line.split(' ')) else {
                panic!("`{line}` is taken");
            };
            // An error about another missing argument would hide that the value was taken.
            let is_about_it = error.kind() != ErrorKind::MissingRequiredArgument;
            assert!(is_about_it && error.exit_code() == 2, "`{line}`: {error}");
        }
    }

    /// Variables that are not an option's: the client reads the first three itself, and the log the
    /// last.
    const OTHER_VARIABLES: [&str; 4] = ["WAKEQ_SERVER", "WAKEQ_KEY", "WAKEQ_KEY_FILE", "RUST_LOG"];

    /// The variables of the page, each with the text in parentheses behind it. Its rows begin with
    /// "| `NAME` (default) |".
    fn variables_of_the_page() -> BTreeMap<&'static str, &'static str> {
        let rows =
            include_str!("../../../docs/settings.md").lines().filter_map(|line| line.strip_prefix("| `"));
        let mut variables = BTreeMap::new();
        for row in rows {
            let (name, rest) = row.split_once('`').unwrap();
            let (default, _) = rest.split_once('|').unwrap();
            let default = default.trim().trim_start_matches('(').trim_end_matches(')');
            assert_eq!(variables.insert(name, default), None, "{name} has two rows");
        }
        variables
    }

    #[test]
    fn the_page_on_settings_has_each_variable_with_its_default() {
        let page = variables_of_the_page();
        let mut whole = Cli::command();
        whole.build();
        let mut names: BTreeSet<String> = OTHER_VARIABLES.map(str::to_owned).into();
        each(&whole, "wakeq", &mut |below, path| {
            for arg in below.get_arguments() {
                let Some(name) = arg.get_env().and_then(|name| name.to_str()) else { continue };
                names.insert(name.to_owned());
                let defaults = arg.get_default_values();
                if let [default] = defaults
                    && !arg.is_hide_default_value_set()
                {
                    assert_eq!(page.get(name).copied(), default.to_str(), "{name} of `{path}`");
                }
            }
        });
        assert_eq!(page.into_keys().map(str::to_owned).collect::<BTreeSet<_>>(), names);
    }
}
