//! What the text of a statement reveals: whether it may change the session, and whether it is about
//! databases.
//!
//! It reads words, not SQL, so it must never decide what a statement does, only whether to look
//! closer. A session that may have changed is queried, so a false positive costs a query, and a
//! false negative loses a setting.

/// An operation on the databases of this server, each of which is an engine of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseCommand {
    Create {
        name: String,
        template: Option<String>,
    },
    Rename {
        from: String,
        to: String,
    },
    Drop {
        name: String,
        if_exists: bool,
        force: bool,
    },
    /// Whether connections to it are allowed.
    Allow {
        name: String,
        connections: bool,
    },
}

impl DatabaseCommand {
    /// Parses a single statement about databases, if it has one of the supported forms.
    pub(crate) fn of(sql: &str) -> Option<Self> {
        let sql = sql.trim().trim_end_matches(';');
        let words: Vec<String> = sql.split_whitespace().map(plain).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let own = |text: &str| text.to_owned();
        match words.as_slice() {
            ["create", "database", name] => Some(Self::Create { name: own(name), template: None }),
            ["create", "database", name, "template", template] => {
                Some(Self::Create { name: own(name), template: Some(own(template)) })
            }
            ["alter", "database", from, "rename", "to", to] => {
                Some(Self::Rename { from: own(from), to: own(to) })
            }
            ["alter", "database", name, "allow_connections", connections @ ("true" | "false")] => {
                Some(Self::Allow { name: own(name), connections: *connections == "true" })
            }
            ["drop", "database", "if", "exists", name, rest @ ..] => Self::drop(name, true, rest),
            ["drop", "database", name, rest @ ..] => Self::drop(name, false, rest),
            _ => None,
        }
    }

    fn drop(name: &str, if_exists: bool, rest: &[&str]) -> Option<Self> {
        let force = match rest {
            [] => false,
            ["(force)"] | ["with", "(force)"] => true,
            _ => return None,
        };
        Some(Self::Drop { name: name.to_owned(), if_exists, force })
    }

    /// The command tag that Postgres reports when it is done.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE DATABASE",
            Self::Rename { .. } | Self::Allow { .. } => "ALTER DATABASE",
            Self::Drop { .. } => "DROP DATABASE",
        }
    }
}

/// A name as Postgres reads it: unchanged if quoted, else in lower case.
fn plain(word: &str) -> String {
    match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => word.to_lowercase(),
    }
}

/// Whether the text is about databases at all, in a supported form or not.
pub(crate) fn is_about_databases(sql: &str) -> bool {
    statements(sql).any(|words| {
        matches!(words.as_slice(), [verb, object, ..]
            if ["create", "alter", "drop"].contains(&verb.as_str()) && object == "database")
    })
}

/// Whether settings or locks of the session may differ after it.
pub(crate) fn may_change_session(sql: &str) -> bool {
    let lower = sql.to_lowercase();
    lower.contains("set_config")
        || lower.contains("advisory_lock")
        || lower.contains("advisory_unlock")
        || statements(&lower).any(|words| {
            words
                .first()
                .is_some_and(|verb| ["set", "reset", "discard", "do", "call"].contains(&verb.as_str()))
        })
}

/// Whether the client would send rows next, which the engine accepts only from a socket of its own.
pub(crate) fn copies_in(sql: &str) -> bool {
    statements(sql).any(|words| {
        words.first().is_some_and(|verb| verb == "copy")
            && words.windows(2).any(|pair| pair[0] == "from" && pair[1].starts_with("stdin"))
    })
}

/// The first words of each statement, in lower case. A `;` inside a literal begins a statement too.
fn statements(sql: &str) -> impl Iterator<Item = Vec<String>> {
    sql.split(';').map(|statement| {
        let without_comments: String = statement
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join(" ");
        without_comments.split_whitespace().take(200).map(str::to_lowercase).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(name: &str, template: Option<&str>) -> Option<DatabaseCommand> {
        Some(DatabaseCommand::Create { name: name.to_owned(), template: template.map(str::to_owned) })
    }

    #[test]
    fn statements_about_databases_are_read() {
        assert_eq!(DatabaseCommand::of(" CREATE DATABASE Shop ;"), create("shop", None));
        assert_eq!(
            DatabaseCommand::of("create database \"Shop\"\n template shop_1"),
            create("Shop", Some("shop_1"))
        );
        let rename = DatabaseCommand::Rename { from: "a".to_owned(), to: "b".to_owned() };
        assert_eq!(DatabaseCommand::of("alter database a rename to b"), Some(rename));
        let allow = DatabaseCommand::Allow { name: "a".to_owned(), connections: false };
        assert_eq!(DatabaseCommand::of("alter database \"a\" ALLOW_CONNECTIONS false"), Some(allow));
        for (sql, if_exists, force) in [
            ("drop database a", false, false),
            ("drop database if exists a", true, false),
            ("drop database if exists a with (force)", true, true),
        ] {
            let expected = DatabaseCommand::Drop { name: "a".to_owned(), if_exists, force };
            assert_eq!(DatabaseCommand::of(sql), Some(expected), "{sql}");
        }
        for other in [
            "select 1",
            "create table database (id int)",
            "create database a owner b",
            "drop database a cascade",
        ] {
            assert_eq!(DatabaseCommand::of(other), None, "{other}");
        }
        assert!(is_about_databases("select 1; create  database a owner b"));
        assert!(!is_about_databases("create table database (id int)"));
    }

    #[test]
    fn detects_statements_that_may_change_the_session() {
        for sql in [
            "set a = 1",
            "select 1; RESET all",
            "select set_config('a', $1, false)",
            "-- why\nset a to b",
            "select pg_advisory_lock(1)",
            "discard all",
            "do $$ begin perform 1; end $$",
        ] {
            assert!(may_change_session(sql), "{sql}");
        }
        for sql in ["update a set b = 1", "select 1", "insert into settings values (1)", "begin"] {
            assert!(!may_change_session(sql), "{sql}");
        }
    }

    #[test]
    fn detects_copy_from_stdin() {
        assert!(copies_in("COPY a (b, c) FROM STDIN (format csv)"));
        assert!(copies_in("copy a from stdin"));
        assert!(!copies_in("copy a to stdout"));
        assert!(!copies_in("select 'copy a from stdin'"));
    }
}
