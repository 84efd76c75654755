//! The keys and names of limits in Postgres: its checks accept what the library does.

use super::Table;
use crate::event::{LimitKey, LimitName};

/// Texts where the checks could differ: each character alone and at either end, each length around
/// the longest, and what is reserved, nearly reserved, or no key at all.
fn samples() -> Vec<String> {
    let characters = (1..256).chain([0x2028, 0x1f600]).filter_map(char::from_u32);
    let alone = characters.flat_map(|one| [one.to_string(), format!("{one}ab"), format!("ab{one}")]);
    let lengths = [1, 2, 199, 200, 201, 300].map(|length| "x".repeat(length));
    let longest = ["x".repeat(128), "x".repeat(129)].map(|name| format!("handler:{name}/{name}"));
    let words = [
        "",
        ".",
        "..",
        "...",
        ":",
        "::",
        "canvas",
        "canvas:",
        "canvas:7",
        "canvases",
        "Canvas",
        "canvas.7",
        "handler",
        "handler:",
        "handler:a",
        "handler:a/b",
        "handler:a/b/c",
        "handler:/b",
        "handler:a/",
        "handler:./b",
        "handler:a/..",
        "handler:a b/c",
        "handlers:a",
        "Handler:a/b",
        "customer",
        "customer:7",
        "customer:7:eu",
        "a/b",
    ];
    alone.chain(lengths).chain(longest).chain(words.map(str::to_owned)).collect()
}

/// How many texts both accept.
async fn accepted(statement: &'static str, fits: impl Fn(&str) -> bool) -> usize {
    let table = Table::new().await;
    let mut both = 0;
    for text in samples() {
        let judged = sqlx::query_scalar::<_, bool>(statement).bind(&text).fetch_one(&table.pool).await;
        assert_eq!(judged.is_ok(), fits(&text), "{text:?}: {judged:?}");
        both += usize::from(fits(&text));
    }
    both
}

#[tokio::test]
async fn plain_sql_may_name_the_same_keys() {
    let statement =
        "select wakeq.kept_options(jsonb_build_object('limits', jsonb_build_array($1::text))) is not null";
    assert_eq!(accepted(statement, |text| text.parse::<LimitKey>().is_ok()).await, 224);
}

#[tokio::test]
async fn a_row_may_have_the_same_names() {
    let statement = "select $1::text::wakeq.limit_name is not null";
    assert_eq!(accepted(statement, |text| text.parse::<LimitName>().is_ok()).await, 227);
}
