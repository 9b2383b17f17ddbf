# The `tsdb` command, built from this repository.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin tsdb

FROM debian:bookworm-slim
COPY --from=build /src/target/release/tsdb /usr/local/bin/tsdb
RUN useradd --system tsdb && install -d -o tsdb /var/lib/tsdb
USER tsdb
EXPOSE 4242
VOLUME /var/lib/tsdb
ENTRYPOINT ["tsdb"]
CMD ["tsd", "--config=/etc/tsdb/opentsdb.conf"]
