/** Small line icons, 16 x 16, in the colour of the text. */
import { html } from '../../dom.js';

const PATHS = {
  eye: 'M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8Z M8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z',
  eyeOff:
    'M2.5 2.5l11 11 M6.2 3.8A6 6 0 0 1 8 3.5c4 0 6.5 4.5 6.5 4.5a11 11 0 0 1-1.8 2.3 ' +
    'M4 5.2A11 11 0 0 0 1.5 8S4 12.5 8 12.5a6 6 0 0 0 3-.8',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Z M10.7 10.7 14 14',
  check: 'M3 8.5 6.5 12 13 4.5',
  cross: 'M4 4l8 8 M12 4l-8 8',
  stop: 'M4.5 4.5h7v7h-7Z',
  pause: 'M5.5 4v8 M10.5 4v8',
  play: 'M5 3.5v9l7-4.5Z',
  circle: 'M8 12.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Z',
  warn: 'M8 2 15 13.5H1Z M8 6.5V10 M8 12v.2',
  up: 'M3.5 10 8 5.5 12.5 10',
  down: 'M3.5 6 8 10.5 12.5 6',
  right: 'M6 3.5 10.5 8 6 12.5',
  left: 'M10 3.5 5.5 8 10 12.5',
  expand: 'M9.5 2.5h4v4 M13.5 2.5 9 7 M6.5 13.5h-4v-4 M2.5 13.5 7 9',
  columns: 'M2.5 3h11v10h-11Z M6.2 3v10 M9.8 3v10',
  download: 'M8 2.5v7.5 M4.5 7 8 10.5 11.5 7 M2.5 13.5h11',
  link: 'M6.5 9.5l3-3 M7 4.5l1.5-1.5a3 3 0 0 1 4.3 4.3L11 9 M9 11.5 7.5 13a3 3 0 0 1-4.3-4.3L5 7',
  light:
    'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Z M8 1.5v1.2 M8 13.3v1.2 M1.5 8h1.2 M13.3 8h1.2 M3.4 3.4l.9.9 ' +
    'M11.7 11.7l.9.9 M12.6 3.4l-.9.9 M4.3 11.7l-.9.9',
  dark: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z',
  auto: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z M8 2v12 M8 5h4.5 M8 8h6 M8 11h4.5',
  pencil: 'M3 13l.7-2.8L11 3l2 2-7.2 7.3Z',
  tag: 'M2.5 2.5h5l6 6-5 5-6-6Z M5.3 5.3v.1',
  archive: 'M2 3h12v3H2Z M3 6v7h10V6 M6.5 8.5h3',
  chart: 'M2.5 2.5v11h11 M5 10.5 8 7l2 1.5 3-4',
  plus: 'M8 3v10 M3 8h10',
  trash: 'M3 4.5h10 M6.5 4.5v-2h3v2 M4.2 4.5l.6 9h6.4l.6-9',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.6L13 6 M13 2.5V6H9.5',
  text: 'M3 4h10 M3 8h10 M3 12h6',
  question: 'M5.2 6a2.8 2.8 0 1 1 4.3 2.4C8.4 9.1 8 9.6 8 10.7 M8 13.3v.2',
  dots: 'M3.5 8v.1 M8 8v.1 M12.5 8v.1',
  fork:
    'M4.5 5.5v5 M4.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z ' +
    'M4.5 13.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z M11.5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z ' +
    'M11.5 5.5c0 3-7 2-7 5',
  person: 'M8 8a2.75 2.75 0 1 0 0-5.5A2.75 2.75 0 0 0 8 8Z M2.8 13.8a5.2 5.2 0 0 1 10.4 0',
  copy: 'M5.5 5.5h8v8h-8Z M3 10.5H2.5v-8h8V3',
};

/**
 * @param {{name: keyof typeof PATHS, size?: number, label?: string}}
 *   props `label`: for screen readers if there is no text next to the icon
 */
export function Icon({ name, size = 16, label }) {
  return html`<svg
    class="icon"
    width=${size}
    height=${size}
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.4"
    stroke-linecap="round"
    stroke-linejoin="round"
    role=${label ? 'img' : undefined}
    aria-label=${label}
    aria-hidden=${label ? undefined : 'true'}
  >
    <path d=${PATHS[name]} />
  </svg>`;
}

/**
 * A button with only an icon. Screen readers read `label`.
 * @param {{icon: keyof typeof PATHS, label: string, size?: number, title?: string, disabled?: boolean,
 *   onClick: (event: MouseEvent) => void}} props
 */
export function IconButton({ icon, label, size, ...attributes }) {
  return html`<button type="button" class="button-icon" aria-label=${label} ...${attributes}>
    <${Icon} name=${icon} size=${size} />
  </button>`;
}
