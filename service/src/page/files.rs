//! The files of the pages, which are part of the program. Their addresses change with their
//! contents, so that a browser may keep them.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::problem::Problem;

macro_rules! files {
    ($($name:literal $kind:literal;)*) => {
        /// Name, content type and contents.
        const FILES: &[(&str, &str, &str)] = &[$(($name, $kind, include_str!(concat!("assets/", $name))),)*];
    };
}

files! {
    "style.css" "text/css; charset=utf-8";
    "theme.js" "text/javascript; charset=utf-8";
    "page.js" "text/javascript; charset=utf-8";
    "htmx.min.js" "text/javascript; charset=utf-8";
    "mark.svg" "image/svg+xml";
}

/// A hash of all of them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: String = FILES.iter().map(|(_, _, contents)| *contents).collect();
    digest(&SHA256, all.as_bytes()).as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// The path of a file from the root.
pub(super) fn address(name: &str) -> String {
    format!("/assets/{}-{name}", *VERSION)
}

/// A file, whatever version was asked for: a page of another release may be open.
pub(super) async fn file(Path(asked): Path<String>) -> Result<Response, Problem> {
    let (version, name) = asked.split_once('-').ok_or_else(Problem::not_found)?;
    let (_, kind, contents) =
        FILES.iter().find(|(known, ..)| *known == name).ok_or_else(Problem::not_found)?;
    let kept = if *version == **VERSION { "public, max-age=31536000, immutable" } else { "no-store" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
    ];
    Ok((headers, *contents).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(name: &str) -> &'static str {
        FILES.iter().find(|(known, ..)| *known == name).unwrap().2
    }

    /// How bright a colour of a palette is, as WCAG has it.
    fn luminance(palette: &str, name: &str) -> f64 {
        let hex = palette.split_once(&format!("--{name}: #")).unwrap().1;
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    }

    /// By its words, which can be read, and by its edge beside those of the others.
    #[test]
    fn the_chosen_one_of_several_can_be_told_in_each_mode() {
        let style = contents("style.css");
        let rule = style.split_once(".button[aria-current] {").unwrap().1.split('}').next().unwrap();
        for part in
            ["background: var(--accent-soft)", "border-color: var(--accent)", "; color: var(--accent)"]
        {
            assert!(rule.contains(part), "{rule}");
        }
        let palettes: Vec<_> = style.split("--paper: #").skip(1).collect();
        assert_eq!(palettes.len(), 3);
        for palette in palettes {
            let accent = luminance(palette, "accent");
            for (beside, least) in [("accent-soft", 4.5), ("raised", 3.0)] {
                let other = luminance(palette, beside);
                let contrast = (accent.max(other) + 0.05) / (accent.min(other) + 0.05);
                assert!(contrast >= least, "{beside}: {contrast}");
            }
        }
    }

    /// As it is published on npm: `htmx.org` 2.0.11, `dist/htmx.min.js`.
    #[test]
    fn the_library_is_the_published_one() {
        let hash = digest(&SHA256, contents("htmx.min.js").as_bytes());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717");
    }
}
