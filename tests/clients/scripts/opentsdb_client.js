// npm opentsdb: lines by its socket, and queries by its client.
'use strict';

const opentsdb = require('opentsdb');

const host = process.argv[2];
const port = Number(process.argv[3]);
const second = Number(process.argv[4]);

function send(done) {
    const socket = opentsdb.socket();
    socket.host(host).port(port);
    socket.on('connect', () => {
        for (let step = 0; step < 100; step += 1) {
            const datum = opentsdb.datum();
            datum
                .metric('clients.node.utilization')
                .timestamp((second + step) * 1000)
                .value(step / 11)
                .tags('nid', step % 2 ? 'a' : 'b')
                .tags('dc', 'x');
            socket.write(`put ${datum.toString()}\n`);
        }
        socket.on('close', () => setTimeout(done, 500));
        socket.end();
    });
    socket.connect();
}

function ask(questions, done) {
    if (questions.length === 0) {
        done();
        return;
    }
    questions[0]((error, data) => {
        if (error || !data || data.length === 0) {
            throw new Error(`no answer: ${JSON.stringify(error)} ${JSON.stringify(data)}`);
        }
        ask(questions.slice(1), done);
    });
}

function query(aggregator, tag, change) {
    const one = opentsdb.mquery();
    one.aggregator(aggregator).metric('clients.node.utilization').tags('nid', tag);
    change(one);
    const client = opentsdb.client();
    client.host(host).port(port).start(second * 1000).end((second + 100) * 1000).queries(one);
    return client;
}

send(() => {
    const plain = query('sum', '*', () => {});
    const downsampled = query('avg', 'a', (one) => one.downsample('10s-avg'));
    const rated = query('max', '*', (one) => one.rate(true));
    const seconds = query('zimsum', '*', () => {}).ms(false).arrays(false).tsuids(true).annotations('all');
    ask(
        [
            ...[plain, downsampled, rated, seconds].map((client) => (done) => client.get(done)),
            (done) => plain.aggregators(done),
            (done) => plain.metrics(done),
        ],
        () => {},
    );
});
