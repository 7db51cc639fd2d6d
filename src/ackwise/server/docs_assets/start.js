// Starts Swagger UI on the page /docs. A file of its own, because the page allows no inline scripts.
window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    docExpansion: "none",
    tryItOutEnabled: true,
    validatorUrl: null,
  });
});
