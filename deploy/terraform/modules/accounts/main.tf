# The accounts that processes run as. They have no rights here: each module gives what it owns to who needs it.

locals {
  accounts = {
    api     = "serves the HTTP API: publishes"
    worker  = "runs handlers: receives and publishes"
    migrate = "changes the schema before a release"
    invoker = "whose tokens Pub/Sub and Cloud Scheduler show; has no rights anywhere"
    # Let in by `wakeq accounts allow`; people show its tokens to the API.
    operator = "looks after the queue over HTTP; has no rights anywhere"
  }
}

resource "google_service_account" "this" {
  for_each = local.accounts

  project      = var.project
  account_id   = "${var.name}-${each.key}"
  display_name = "${var.name} ${each.key}"
  description  = each.value
}

# GKE: a Kubernetes account of that name may act as the Google one.
resource "google_service_account_iam_member" "workload" {
  for_each = var.kubernetes_namespace == null ? {} : { for name in ["api", "worker", "migrate"] : name => name }

  service_account_id = google_service_account.this[each.key].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${var.kubernetes_namespace}/wakeq-${each.key}]"
}

resource "google_service_account_iam_member" "operator" {
  for_each = var.operators

  service_account_id = google_service_account.this["operator"].name
  role               = "roles/iam.serviceAccountOpenIdTokenCreator"
  member             = each.value
}
