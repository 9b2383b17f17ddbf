use bytes::{BufMut, BytesMut};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::time::{advance, pause};

use super::*;
use crate::frame::FrameReader;

fn response(call_id: u32, class: Option<&str>) -> Response {
    let exception = class.map(|class| pb::ExceptionResponse {
        exception_class_name: Some(class.to_owned()),
        ..pb::ExceptionResponse::default()
    });
    let header =
        pb::ResponseHeader { call_id: Some(call_id), exception, ..pb::ResponseHeader::default() };
    let body = header.encode_length_delimited_to_vec();
    let mut buffer = BytesMut::new();
    buffer.put_u32(body.len() as u32);
    buffer.put_slice(&body);
    Response::decode(FrameReader::new(1 << 10).next(&mut buffer).unwrap().unwrap()).unwrap()
}

fn calls() -> Arc<Calls> {
    Arc::new(Calls::new(Arc::new(FirstWords::new(Arc::default()))))
}

#[tokio::test]
async fn an_answer_reaches_its_call_and_no_other() {
    let calls = calls();
    let (mut one, mut two) = (calls.begin().unwrap(), calls.begin().unwrap());
    calls.answered(response(two.id(), Some("java.io.IOException")));
    calls.answered(response(one.id(), None));
    assert!(one.answer().await.is_ok());
    assert!(matches!(two.answer().await, Err(End::Exception(_))));
    // Nobody waits for these.
    calls.answered(response(two.id(), None));
    calls.answered(response(77, None));
    assert!(calls.is_open());
}

#[tokio::test]
async fn ids_wrap_and_pass_over_those_in_use() {
    let calls = calls();
    let first = calls.begin().unwrap();
    assert_eq!(first.id(), 0);
    calls.state().next_id = i32::MAX as u32;
    assert_eq!(calls.begin().unwrap().id(), i32::MAX as u32);
    assert_eq!(calls.begin().unwrap().id(), 1);
    drop(first);
    calls.state().next_id = 0;
    assert_eq!(calls.begin().unwrap().id(), 0);
}

#[tokio::test]
async fn a_dropped_call_is_forgotten() {
    let calls = calls();
    let id = calls.begin().unwrap().id();
    assert!(calls.state().waiting.is_empty());
    assert_eq!(calls.sending([id].into_iter()), [false]);
}

#[tokio::test]
async fn the_end_tells_each_call_whether_it_had_gone_out() {
    let calls = calls();
    let (mut sent, mut waiting) = (calls.begin().unwrap(), calls.begin().unwrap());
    assert_eq!(calls.sending([sent.id()].into_iter()), [true]);
    calls.heard();
    calls.lost(&DisconnectReason::ClosedByServer);
    calls.close(&DisconnectReason::Dead);
    for (call, expected) in [(&mut sent, true), (&mut waiting, false)] {
        let Err(End::Disconnected { sent, reason }) = call.answer().await else { panic!() };
        assert_eq!(sent, expected);
        assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
    }
    assert!(calls.begin().is_err());
}

#[tokio::test]
async fn words_about_the_connection_end_it() {
    for (id, class) in
        [(CONNECTION_CALL, "x.AccessDeniedException"), (0, "x.ipc.FatalConnectionException")]
    {
        let calls = calls();
        let mut call = calls.begin().unwrap();
        calls.answered(response(id, Some(class)));
        let end = call.answer().await;
        assert!(
            matches!(&end, Err(End::Disconnected { reason: DisconnectReason::Refused(_), .. })),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn only_a_connection_without_a_word_ends_in_silence() {
    let silent = calls();
    let mut call = silent.begin().unwrap();
    silent.lost(&DisconnectReason::ClosedByServer);
    let Err(End::Disconnected { reason, .. }) = call.answer().await else { panic!() };
    assert!(matches!(reason, DisconnectReason::Silent { times: 1, for_good: false }), "{reason}");
    let heard = calls();
    let mut call = heard.begin().unwrap();
    heard.heard();
    heard.lost(&DisconnectReason::ClosedByServer);
    let Err(End::Disconnected { reason, .. }) = call.answer().await else { panic!() };
    assert!(matches!(reason, DisconnectReason::ClosedByServer), "{reason}");
}

#[tokio::test]
async fn calls_out_of_time_in_a_row_and_nothing_read_is_death() {
    pause();
    let give_up = |calls: &Arc<Calls>| {
        let call = calls.begin().unwrap();
        calls.sending([call.id()].into_iter());
        assert!(call.give_up(DEAD_SILENCE));
    };
    let hasty = calls();
    let calls = calls();
    advance(DEAD_SILENCE * 2).await;
    give_up(&calls);
    assert!(calls.is_open());
    // A byte in between: it lives.
    calls.heard();
    advance(DEAD_SILENCE * 2).await;
    give_up(&calls);
    assert!(calls.is_open());
    give_up(&calls);
    assert!(!calls.is_open());
    // Callers in a hurry do not kill it.
    hasty.heard();
    for _ in 0..10 {
        give_up(&hasty);
    }
    assert!(hasty.is_open());
}

#[tokio::test]
async fn only_an_idle_connection_is_closed_as_idle() {
    let calls = calls();
    let call = calls.begin().unwrap();
    calls.close_if_idle();
    assert!(calls.is_open());
    drop(call);
    calls.close_if_idle();
    assert!(!calls.is_open());
}

#[tokio::test(start_paused = true)]
async fn one_patient_call_without_a_byte_read_is_death() {
    let begin = |calls: &Arc<Calls>| {
        let call = calls.begin().unwrap();
        calls.sending([call.id()].into_iter());
        call
    };
    let calls = calls();
    calls.heard();
    let call = begin(&calls);
    advance(PATIENT / 2).await;
    calls.heard();
    advance(PATIENT / 2).await;
    assert!(call.give_up(PATIENT));
    assert!(calls.is_open());
    calls.heard();
    let call = begin(&calls);
    advance(PATIENT).await;
    assert!(call.give_up(PATIENT));
    assert!(!calls.is_open());
}
