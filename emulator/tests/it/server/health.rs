//! `grpc.health.v1`.

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use wakeq_emulator::Options;

use super::{connect, soon};
use crate::limited::LimitedEmulator;

const SERVING: i32 = 1;
const SERVICE_UNKNOWN: i32 = 3;

#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    status: i32,
}

fn about(service: &str) -> Request<Question> {
    Request::new(Question { service: service.to_owned() })
}

async fn client(emulator: &LimitedEmulator) -> Grpc<Channel> {
    let mut client = Grpc::new(connect(emulator).await);
    soon(client.ready()).await.unwrap();
    client
}

#[tokio::test]
async fn its_services_are_healthy_as_long_as_it_runs() {
    let emulator = LimitedEmulator::start(Options::default()).await;
    let check = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    for (service, expected) in
        [("", Ok(SERVING)), ("google.pubsub.v1.Publisher", Ok(SERVING)), ("other", Err(Code::NotFound))]
    {
        let codec = ProstCodec::<Question, Answer>::default();
        let answer = soon(client(&emulator).await.unary(about(service), check.clone(), codec)).await;
        let status = answer.map(|answer| answer.into_inner().status).map_err(|status| status.code());
        assert_eq!(status, expected, "{service}");
    }

    let watch = PathAndQuery::from_static("/grpc.health.v1.Health/Watch");
    let mut watched = Vec::new();
    for (service, expected) in [("", SERVING), ("other", SERVICE_UNKNOWN)] {
        let codec = ProstCodec::<Question, Answer>::default();
        let answer = client(&emulator).await.server_streaming(about(service), watch.clone(), codec).await;
        let mut answers = answer.unwrap().into_inner();
        assert_eq!(soon(answers.message()).await.unwrap().unwrap().status, expected, "{service}");
        watched.push(answers);
    }
    soon(emulator.stop()).await;
    for mut answers in watched {
        assert_eq!(soon(answers.message()).await.unwrap_err().code(), Code::Unavailable);
    }
}
