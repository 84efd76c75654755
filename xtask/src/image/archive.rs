//! Writes tar files, and with them an image: one layer, its configuration and its manifests, in the OCI layout and
//! with the file by which older engines find their way (`docker load` takes both).
//!
//! The same contents make the same bytes: no time, no owner's name, one order.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::contents::{Content, Entry};
use super::{PORT, USER};

const BLOCK: usize = 512;

/// The file system of the image, as a tar file.
pub(crate) fn layer(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut tar = Vec::new();
    for entry in entries {
        match &entry.content {
            Content::Folder => append(&mut tar, &format!("{}/", entry.path), entry.mode, b'5', &[])?,
            Content::File(bytes) => append(&mut tar, &entry.path, entry.mode, b'0', bytes)?,
        }
    }
    Ok(finished(tar))
}

/// The whole image, as a tar file.
pub(super) fn image(layer: &[u8]) -> Result<Vec<u8>> {
    let layer_digest = digest(layer);
    let configuration = serde_json::to_vec(&configuration(&layer_digest))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &configuration),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    }))?;
    let mut main = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    main["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
    let index = json!({ "schemaVersion": 2, "manifests": [main] });
    let for_older_engines =
        json!([{ "Config": blob(&configuration), "RepoTags": ["wakeq:latest"], "Layers": [blob(layer)] }]);
    let mut tar = Vec::new();
    append(&mut tar, "oci-layout", 0o644, b'0', br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", 0o644, b'0', &serde_json::to_vec(&index)?)?;
    append(&mut tar, "manifest.json", 0o644, b'0', &serde_json::to_vec(&for_older_engines)?)?;
    for content in [layer, &configuration, &manifest] {
        append(&mut tar, &blob(content), 0o644, b'0', content)?;
    }
    Ok(finished(tar))
}

/// What the Dockerfile says, too.
fn configuration(layer_digest: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let seconds = |seconds: u64| seconds * 1_000_000_000;
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/", format!("PORT={PORT}")],
            "ExposedPorts": { format!("{PORT}/tcp"): {} },
            "Entrypoint": ["/wakeq"],
            "Cmd": ["all"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/wakeq", "health"],
                "Interval": seconds(10), "Timeout": seconds(5), "StartPeriod": seconds(20), "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "wakeq",
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
        "history": [{ "created_by": "cargo xtask image" }],
    })
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn blob(content: &[u8]) -> String {
    format!("blobs/{}", digest(content).replace(':', "/"))
}

/// One member of a tar file in the format of POSIX 1988: every name here is shorter than 100 bytes.
fn append(tar: &mut Vec<u8>, path: &str, mode: u32, kind: u8, content: &[u8]) -> Result<()> {
    ensure!(path.len() < 100, "{path} is too long for a name in a tar file");
    let mut header = [0_u8; BLOCK];
    header[..path.len()].copy_from_slice(path.as_bytes());
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(100, &format!("{mode:07o}\0"));
    put(108, "0000000\0"); // root owns everything: the container's user may only read
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0"); // 1970
    put(148, "        "); // the sum is taken with blanks in its own place
    put(257, "ustar\0");
    put(263, "00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

fn finished(mut tar: Vec<u8>) -> Vec<u8> {
    tar.resize(tar.len() + 2 * BLOCK, 0);
    tar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_header_and_whole_blocks() {
        let mut tar = Vec::new();
        append(&mut tar, "a/b", 0o755, b'0', b"hello").unwrap();
        assert_eq!(tar.len(), 2 * BLOCK);
        assert_eq!(
            (&tar[..4], &tar[100..107], &tar[124..135]),
            (&b"a/b\0"[..], &b"0000755"[..], &b"00000000005"[..])
        );
        let told = u32::from_str_radix(std::str::from_utf8(&tar[148..154]).unwrap(), 8).unwrap();
        let own_place = 148..156;
        let sum: u32 =
            (0..BLOCK).map(|at| if own_place.contains(&at) { 32 } else { u32::from(tar[at]) }).sum();
        assert_eq!(told, sum);
        assert_eq!(&tar[BLOCK..BLOCK + 6], b"hello\0");
        assert!(append(&mut tar, &"x".repeat(100), 0o644, b'0', b"").is_err());
    }

    #[test]
    fn an_image_names_its_parts_by_their_digests() {
        let of_nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), of_nothing);
        let made = configuration(of_nothing);
        assert_eq!(made["rootfs"]["diff_ids"][0], of_nothing);
        assert_eq!(made["config"]["User"], "65532:65532");
    }
}
