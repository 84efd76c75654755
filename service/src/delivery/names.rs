//! Host names that are always refused. Resolves nothing.

/// Names of metadata services: refused wherever they lead.
const METADATA_NAMES: &[&str] = &[
    "api.metadata.cloud.ibm.com",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.tencentyun.com",
];

/// Whether a name is a metadata service's, or below one.
pub(super) fn is_metadata_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    METADATA_NAMES.iter().any(|refused| {
        name.strip_suffix(refused)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.') && refused.contains('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metadata_services_are_known_in_any_form() {
        for name in [
            "metadata.google.internal",
            "METADATA.google.internal.",
            "x.metadata.google.internal",
            "metadata",
            "metadata.",
            "instance-data",
            "api.metadata.cloud.ibm.com",
            "metadata.goog",
            "a.metadata.goog",
        ] {
            assert!(is_metadata_name(name), "{name}");
        }
        for name in
            ["metadata.example", "google.internal", "xmetadata.google.internal", "my.metadata", "example"]
        {
            assert!(!is_metadata_name(name), "{name}");
        }
    }
}
