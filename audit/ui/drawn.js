// A part of a report, as it is: its markup was escaped where it was made. Streamlit takes drawings out of HTML.
export default ({ data, parentElement }) => { parentElement.querySelector(".drawn").innerHTML = data.markup; };
