//! Delegation tokens, which clusters issue to clients that have authenticated by Kerberos.

use std::time::Duration;

use hbase_rs::{
    Get,
    security::{Authentication, Protection, TokenConfig},
};

use super::{Fixture, client_with, put, security};

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn an_issued_token_authenticates_with_every_protection() {
    let mut security = security();
    let client = client_with(|config| config.procedure_timeout = Duration::from_secs(30));
    let issued = client.admin().authentication_token().await;
    if !matches!(security.authentication, Authentication::Kerberos(_)) {
        assert_eq!(issued.unwrap_err().attempts, 1);
        return;
    }
    let token = issued.unwrap().unwrap();
    let fixture = Fixture::new("live_tokens").await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, token.encode_file()).unwrap();
    for protection in [Protection::Authentication, Protection::Integrity, Protection::Privacy] {
        let config = TokenConfig { file: file.clone(), protections: vec![protection] };
        security.authentication = Authentication::Token(config);
        let client = client_with(|config| config.transport = security.transport().unwrap());
        let table = client.table(fixture.table.name().clone());
        table.mutate(put(protection.name(), protection.name())).await.unwrap();
        let row = fixture.table.get(&Get::try_new(protection.name()).unwrap()).await.unwrap();
        assert_eq!(row.value(b"f", b"q"), Some(protection.name().as_bytes()));
    }
    fixture.delete().await;
}
