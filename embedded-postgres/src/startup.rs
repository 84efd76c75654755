//! The first packets of a connection: the client's request, and the answer that Postgres would
//! give.
//!
//! It must never ask for a password: the server listens on the loopback interface only.

use std::collections::BTreeMap;

use crate::frame::{Frame, terminated};

const PROTOCOL_3: u32 = 196_608;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
const CANCEL: u32 = 80_877_102;

/// What a packet without a tag requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartupPacket {
    /// Encryption, which is not supported.
    Encryption,
    /// To cancel what another connection waits for.
    Cancel(Key),
    /// A session.
    Session(SessionRequest),
    /// Another protocol, or garbage.
    Unknown,
}

/// What a client receives at its start, and authenticates with when it cancels from another
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) process: u32,
    pub(crate) secret: u32,
}

/// The session that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRequest {
    pub(crate) database: String,
    /// Settings that apply from the start, including its user.
    pub(crate) settings: BTreeMap<String, String>,
}

pub(crate) fn read(packet: &[u8]) -> StartupPacket {
    let Some((code, rest)) = packet.split_first_chunk::<4>() else { return StartupPacket::Unknown };
    match u32::from_be_bytes(*code) {
        SSL | GSS => StartupPacket::Encryption,
        CANCEL => key(rest).map_or(StartupPacket::Unknown, StartupPacket::Cancel),
        PROTOCOL_3 => StartupPacket::Session(session_request(rest)),
        _ => StartupPacket::Unknown,
    }
}

fn key(bytes: &[u8]) -> Option<Key> {
    let (process, rest) = bytes.split_first_chunk::<4>()?;
    let (secret, _) = rest.split_first_chunk::<4>()?;
    Some(Key { process: u32::from_be_bytes(*process), secret: u32::from_be_bytes(*secret) })
}

fn session_request(bytes: &[u8]) -> SessionRequest {
    let texts: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let (mut settings, mut user, mut database) = (BTreeMap::new(), "postgres".to_owned(), None);
    for pair in texts.chunks_exact(2).take_while(|pair| !pair[0].is_empty()) {
        match pair[0].as_str() {
            "user" => user.clone_from(&pair[1]),
            "database" => database = Some(pair[1].clone()),
            "options" => settings.extend(options(&pair[1])),
            // The engine supports only UTF-8, and no replication.
            "client_encoding" | "replication" => {}
            name if name.starts_with("_pq_.") => {}
            name => drop(settings.insert(name.to_lowercase(), pair[1].clone())),
        }
    }
    let database = database.unwrap_or_else(|| user.clone());
    if user != "postgres" {
        settings.insert("session_authorization".to_owned(), user);
    }
    SessionRequest { database, settings }
}

/// Parses `-c name=value` and `--name=value`, with spaces in values escaped by a backslash.
fn options(text: &str) -> Vec<(String, String)> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.extend(letters.next()),
            letter if letter.is_whitespace() => words.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    words.push(word);
    let assignments = words.iter().filter_map(|word| {
        let word = word.strip_prefix("--").or(word.strip_prefix("-c")).unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.trim().to_lowercase().replace('-', "_"), value.to_owned()))
    });
    assignments.collect()
}

/// The answer to a session that is granted.
pub(crate) fn welcome(parameters: &[(String, String)], key: Key) -> Vec<u8> {
    let mut bytes = Frame::new(b'R', 0_u32.to_be_bytes()).bytes();
    for (name, value) in parameters {
        Frame::new(b'S', [terminated(name), terminated(value)].concat()).append_to(&mut bytes);
    }
    Frame::new(b'K', [key.process.to_be_bytes(), key.secret.to_be_bytes()].concat()).append_to(&mut bytes);
    Frame::ready(b'I').append_to(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, texts: &[&str]) -> Vec<u8> {
        let mut bytes = code.to_be_bytes().to_vec();
        texts.iter().for_each(|text| bytes.extend(terminated(text)));
        bytes.push(0);
        bytes
    }

    #[test]
    fn startup_packet_has_the_session_settings() {
        let texts = [
            "user",
            "app",
            "database",
            "shop",
            "TimeZone",
            "UTC",
            "client_encoding",
            "UTF8",
            "options",
            r"-c statement_timeout=5s -csearch_path=a,\ b --lock-timeout=1s",
        ];
        let StartupPacket::Session(request) = read(&packet(PROTOCOL_3, &texts)) else { panic!("a session") };
        assert_eq!(request.database, "shop");
        let settings: Vec<_> =
            request.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("lock_timeout", "1s"),
            ("search_path", "a, b"),
            ("session_authorization", "app"),
            ("statement_timeout", "5s"),
            ("timezone", "UTC"),
        ];
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_superuser_has_a_database_of_its_name_and_no_settings() {
        let StartupPacket::Session(request) = read(&packet(PROTOCOL_3, &["user", "postgres"])) else {
            panic!("a session")
        };
        assert_eq!(request, SessionRequest { database: "postgres".to_owned(), settings: BTreeMap::new() });
    }

    #[test]
    fn distinguishes_encryption_and_cancel_requests() {
        assert_eq!(read(&packet(SSL, &[])), StartupPacket::Encryption);
        assert_eq!(read(&packet(GSS, &[])), StartupPacket::Encryption);
        let cancel = [CANCEL.to_be_bytes(), 7_u32.to_be_bytes(), 9_u32.to_be_bytes()].concat();
        assert_eq!(read(&cancel), StartupPacket::Cancel(Key { process: 7, secret: 9 }));
        assert_eq!(read(&cancel[..6]), StartupPacket::Unknown);
        assert_eq!(read(&packet(2 << 16, &["user", "x"])), StartupPacket::Unknown);
        assert_eq!(read(b"ab"), StartupPacket::Unknown);
    }
}
