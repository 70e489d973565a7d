import { test } from 'node:test';
import assert from 'node:assert/strict';
import { makeExport } from '../../frontend/src/charts/export.js';
import { figure, series } from './series.js';

const ABOUT = {
  title: 'loss',
  subtitle: '',
  position: '',
  rows: [],
  notes: [],
  link: '',
  theme: {},
  background: '#fff',
};

/** A panel's figure as a file, with the texts that `changes` gives. */
const exported = (changes) => makeExport(figure([series()]), { ...ABOUT, yRange: null, cursorX: null, ...changes });

test('no text of a figure is markup', () => {
  const text = '<a href="javascript:alert(1)">x</a>';
  const { layout } = exported({ title: text, subtitle: text, position: text, notes: [text], link: text });
  const texts = [layout.title.text, layout.title.subtitle.text, layout.legend.title.text, layout.annotations[0].text];
  for (const written of texts) assert.doesNotMatch(written, /<(?!br>)/);
});
