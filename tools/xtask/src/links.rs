//! Links of documents, `[text](target)` outside fenced code, for the chores that check or move
//! them. It is not a parser of Markdown, and must never touch a file.

/// The text with each link's target replaced.
pub(crate) fn map(text: &str, mut target: impl FnMut(&str) -> String) -> String {
    let mut in_code = false;
    let mut mapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let mut pieces = line.split("](");
        mapped.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            mapped.push_str("](");
            match piece.split_once(')') {
                Some((link, rest)) if !in_code => mapped.extend([&target(link), ")", rest]),
                _ => mapped.push_str(piece),
            }
        }
    }
    mapped
}

/// The targets of all links, in their order.
pub(crate) fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    map(text, |target| {
        targets.push(target.to_owned());
        String::new()
    });
    targets
}

/// The path in the repository that a relative target in a file leads to.
pub(crate) fn resolve(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_stay() {
        let text = "a [b](c.md) [d\ne](f.md#g)\n```sh\n[h](i.md)\n```\n![j](k.png)";
        assert_eq!(targets(text), ["c.md", "f.md#g", "k.png"]);
        assert_eq!(map(text, str::to_owned), text);
        assert_eq!(map("[b](c.md).\n", |link| format!("d/{link}")), "[b](d/c.md).\n");
    }

    #[test]
    fn relative_targets_are_resolved() {
        assert_eq!(resolve("docs/adr/README.md", "../../src/a.rs"), "src/a.rs");
        assert_eq!(resolve("README.md", "./docs/a.md"), "docs/a.md");
    }
}
