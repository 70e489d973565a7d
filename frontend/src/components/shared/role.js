/** Elements that depend on the role: an operator changes things, and a viewer reads. */
import { html } from '../../dom.js';
import { mayChange } from '../../app/state.js';

/** Content for operators only, such as buttons that the service rejects for a viewer. @param {{children: any}} props */
export const ForOperator = ({ children }) => (mayChange.value ? children : null);

/** A mark in the header that tells viewers about their role. */
export const ViewerMark = () =>
  mayChange.value
    ? null
    : html`<span class="tag" title="You are logged in as a viewer: you can see everything but change nothing">
      viewer
    </span>`;
