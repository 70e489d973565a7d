import { mock, test } from 'node:test';
import assert from 'node:assert/strict';
import { connection, listen, startLive } from '../../frontend/src/data/live.js';
import { postOnce } from '../../frontend/src/data/post_once.js';

/** A stream whose server a test plays. */
class Stream extends EventTarget {
  static CLOSED = 2;
  static opened = [];

  constructor(url) {
    super();
    this.url = url;
    this.readyState = 0;
    Stream.opened.push(this);
  }

  close() {
    this.readyState = Stream.CLOSED;
  }
}

test('after a lost connection every listener fetches again', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  Object.assign(globalThis, { document: new EventTarget(), EventSource: Stream, addEventListener: () => {} });
  const heard = [];
  listen(['run'], (type) => heard.push(type));
  startLive();
  Stream.opened[0].onopen();
  Stream.opened[0].dispatchEvent(new MessageEvent('run', { data: '{}', lastEventId: '7' }));
  assert.deepEqual(heard, ['run']);

  Stream.opened[0].onerror();
  assert.equal(connection.peek().state, 'lost');
  mock.timers.tick(1000);
  assert.match(Stream.opened[1].url, /last_event_id=7$/);
  Stream.opened[1].onopen();
  assert.equal(connection.peek().state, 'live');
  assert.deepEqual(heard, ['run', 'resync']);
});

test('what is sent again after a failure is sent under the same key, and what has changed is not', async () => {
  const keys = [];
  globalThis.fetch = async (_, { headers }) => {
    keys.push(headers['Idempotency-Key']);
    if (keys.length === 2) throw new TypeError('lost');
    return Response.json({});
  };
  const send = postOnce();
  const requests = [
    { path: '/runs', body: { seed: 1 } },
    { path: '/runs', body: { seed: 2 } },
  ];
  await assert.rejects(send(requests));
  await send(requests);
  await send(requests.slice(1));
  const [first, second, ...again] = keys;
  assert.deepEqual(again.slice(0, 2), [first, second]);
  assert.equal(new Set(keys).size, 3);
});
