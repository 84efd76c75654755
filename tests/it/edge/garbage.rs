//! Bad inputs by the hundred: good requests, broken in every way we could think of, the same in
//! every run. None may get a 5xx, and every refusal by a handler has the form of problem details.

use std::time::Duration;

use serde_json::Value;
use wakeq::CanvasId;
use wakeq_service::server::HttpConfig;

use super::raw::Raw;
use crate::support::service::Service;

const INPUTS: u64 = 500;

/// Small pseudo-random numbers, the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % below.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.roll(of.len())]
    }
}

/// A request before it is sent.
struct Request {
    method: &'static str,
    path: String,
    headers: String,
    body: Vec<u8>,
}

/// Good requests: method, path, content type and body.
const SEEDS: &str = r#"POST /events application/json {"module":"WORKER","name":"greet","modifier":"_","value":{"a":[1,2.5,"é"]},"delay_s":1.5}
POST /events application/json {"name":"greet","id":"0198c2a2-7101-7382-922f-e03ca3c19953","delay_until":"2030-01-31T08:00:00Z"}
POST /events:batch application/json {"events":[{"name":"greet","value":1},{"name":"greet","value":null}]}
POST /events application/cloudevents+json {"specversion":"1.0","id":"1","source":"/s","type":"greet","data":{"a":1},"delayseconds":3}
POST /events:batch application/cloudevents-batch+json [{"specversion":"1.0","id":"1","source":"/s","type":"M/greet","data":"x"}]
GET /events?name=greet&state=ready&limit=10
GET /events/0198c2a2-7101-7382-922f-e03ca3c19953?view=full
PUT /handlers/WORKER/greet/pause application/json {"reason":"maintenance","until":"2030-01-31T08:00:00Z"}
PUT /handlers/WORKER/greet/eu application/json {"url":"https://a.example/x","policy":{"retries":3,"delay_s":1.5,"concurrency":2},"audience":"https://a.example"}
POST /handlers/WORKER/greet/purge application/json {"dry_run":true}
POST /dead-events/redrive application/json {"name":"greet","since":"2020-01-01T00:00:00Z","all":false,"dry_run":true}
GET /dead-events?since=2020-01-01T00:00:00Z&limit=5
GET /depth?name=greet"#;

/// What takes the place of a part of the JSON.
const VALUES: &str = r#"null true {} [] "" 0 -1 1e999 -0.0 1e-400 123456789012345678901234567890 9223372036854775808
"\u0000" "\ud800" "\udc00\ud800" NaN Infinity 'x' 1. "+999999-01-01T00:00:00Z" "0000-00-00T00:00:00Z" "9999-12-31T23:59:60Z""#;

impl Request {
    fn seed(service: &Service, index: usize) -> Self {
        let mut parts = SEEDS.lines().nth(index).unwrap().splitn(4, ' ');
        let [method, path, kind, body] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let mut headers =
            format!("host: x\r\nauthorization: Bearer {}\r\nconnection: close\r\n", service.key);
        if !kind.is_empty() {
            headers.push_str(&format!("content-type: {kind}\r\n"));
        }
        let path = format!("/v1/canvases/{}{path}", CanvasId::DEFAULT);
        Self { method, path, headers, body: body.into() }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { method, path, headers, body } = self;
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        [format!("{method} {path} HTTP/1.1\r\n{headers}{length}\r\n").as_bytes(), body].concat()
    }

    /// Breaks one thing.
    fn break_something(&mut self, dice: &mut Dice) {
        let bodiless = self.body.is_empty();
        match dice.roll(10) {
            0..7 if !bodiless => self.break_body(dice),
            7 => {
                let header = dice.one(&[
                    "content-type: application/json; charset=utf-16",
                    "content-type: text/plain",
                    "content-encoding: gzip",
                    "idempotency-key: \u{e9}",
                    "idempotency-key: ",
                    "traceparent: 00-0-0-0",
                    "ce-specversion: 1.0",
                    "ce-type: %zz%00",
                    "x-request-id: <script>",
                    "accept: application/xml",
                    "expect: 200-maybe",
                    "transfer-encoding: gzip, chunked",
                    "content-length: 5",
                    "upgrade: websocket\r\nconnection: upgrade",
                ]);
                self.headers.push_str(&format!("{header}\r\n"));
            }
            _ => self.break_path(dice),
        }
    }

    fn break_path(&mut self, dice: &mut Dice) {
        let start = format!("/v1/canvases/{}", CanvasId::DEFAULT).len();
        let at = if dice.roll(8) == 0 { 13 } else { start + dice.roll(self.path.len() - start) };
        let long = "%61".repeat(3000);
        let pieces = "%00 %ff % %zz // /../ ..%2f &limit=0 &limit=-1 ? & %ed%a0%80 = %F0%9F%92%A9";
        let pieces: Vec<&str> = pieces.split(' ').chain([long.as_str()]).collect();
        let piece = dice.one(&pieces);
        self.path.insert_str(at, piece);
    }

    fn break_body(&mut self, dice: &mut Dice) {
        let at = dice.roll(self.body.len());
        let deep = "[".repeat(100_000);
        let wide = format!("\"{}\"", "x".repeat(270_000));
        match dice.roll(6) {
            0 => self.body.truncate(at),
            1 => self.body[at] ^= 1 << dice.roll(8),
            2 => {
                let [multibyte, single]: [&[&[u8]]; 2] = [
                    &[b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf"],
                    &[b"\0", b"\xff", b"\"", b"}", b"\\", b"\n"],
                ];
                let piece = dice.one(&[single, multibyte].concat());
                self.body.splice(at..at, piece.iter().copied());
            }
            3 => {
                let piece = self.body[at..].to_vec();
                self.body.splice(at..at, piece);
            }
            // Replaces a part of the JSON.
            _ => {
                let Ok(mut json) = serde_json::from_slice::<Value>(&self.body) else { return };
                let mut places = 0;
                each_part(&mut json, &mut |_| places += 1);
                let mut chosen = dice.roll(places);
                each_part(&mut json, &mut |part| {
                    if chosen == 0 {
                        *part = "@@".into();
                    }
                    chosen = chosen.wrapping_sub(1);
                });
                let values: Vec<&str> = VALUES.split_whitespace().chain([deep.as_str(), &wide]).collect();
                let instead = dice.one(&values);
                self.body = json.to_string().replace("\"@@\"", instead).into_bytes();
            }
        }
    }
}

fn each_part(json: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    match json {
        Value::Array(items) => items.iter_mut().for_each(|item| each_part(item, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_part(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    visit(json);
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_bad_input_is_a_defect_of_the_service() {
    let soon = Duration::from_millis(500);
    let config = HttpConfig { header_timeout: soon, body_timeout: soon, ..HttpConfig::default() };
    let service = Service::with(config).await;
    let mut answers = std::collections::BTreeMap::<Option<u16>, u32>::new();
    for number in 0..INPUTS {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9));
        let mut request = Request::seed(&service, dice.roll(SEEDS.lines().count()));
        for _ in 0..=dice.roll(3) {
            request.break_something(&mut dice);
        }
        let mut bytes = request.bytes();
        if dice.roll(10) == 0 {
            let at = dice.roll(bytes.len());
            bytes[at] = u8::try_from(dice.roll(256)).unwrap();
        }
        let mut raw = Raw::sending(&service, &bytes).await;
        let answer = raw.answer_if_any().await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
        let status = answer.as_ref().map(|answer| answer.status);
        if let Some(answer) = answer.filter(|answer| answer.status >= 400) {
            assert!(answer.status < 500, "{} for {shown}", answer.body);
            if answer.head.contains("x-request-id: ") {
                answer.problem();
            } else {
                assert_eq!(answer.body, "", "hyper refuses what is not HTTP/1.1: {shown}");
            }
        }
        *answers.entry(status).or_default() += 1;
    }
    println!("{INPUTS} bad inputs: {answers:?}");
    let refused: u32 = answers.range(Some(400)..).map(|(_, count)| count).sum();
    assert!(refused > 250, "most of them are bad: {answers:?}");
    service.stop().await;
}
